"""Captures a function as CUDA graphs, for inputs of one shape. A capture uses one stream, or several streams if several
streams are predicted to be faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from unstall.fix.graphs.capture.capture_device import CaptureDevice, Pool, ReplayableGraph
from unstall.fix.graphs.capture.parallel import CannotFork, Forking, Trace, Tracing
from unstall.fix.graphs.capture.stream_plan import Plan, plan

Segment = Callable[[list[Any]], Callable[[], Any]]
"""A part of a function that is captured as a graph of its own: the forward pass or the backward pass. A segment is a
function that returns the function to capture. It is called outside of a capture, with the list of the results of
earlier segments."""

_WORTH = 0.98  # a plan is captured only if it takes at most this share of the serial time
_LANES = (2, 4)


@dataclass(slots=True)
class Captured:
    """A captured function: one graph for each segment (the forward and, if there is one, the backward).

    Attributes:
        lanes: How many streams the graphs use.
        graphs: The graphs, in the order in which they are replayed.
        results: The result of each segment. The tensors in these results are in the memory of the graphs.
        nodes: The total number of nodes of all graphs, or None if the number is unknown.
        waits: How often one stream waits for another stream.
    """

    lanes: int
    graphs: list[ReplayableGraph] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    nodes: int | None = 0
    waits: int = 0

    def replay(self) -> None:
        for graph in self.graphs:
            graph.replay()

    def reset(self) -> None:
        self.results.clear()
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()


def capture_serial(
    device: CaptureDevice, pool: Pool, generators: list[torch.Generator], segments: list[Segment]
) -> Captured:
    return _capture(device, pool, generators, segments, 1, lambda _: contextlib.nullcontext())


def capture_parallel(
    device: CaptureDevice,
    pool: Pool,
    generators: list[torch.Generator],
    segments: list[Segment],
    counts: tuple[int, ...] | None,
    restore: Callable[[], None],
) -> list[Captured]:
    """Captures a function on several streams, once for each number of streams that is worth trying. Returns the
    captures.

    Args:
        device: The device.
        pool: The memory pool of the graphs.
        generators: The random number generators that the function may use.
        segments: The parts of the function (forward pass, backward pass), which are captured one after the other.
        counts: The numbers of streams to try. If None, tries 2 streams and 4 streams, each only if it is predicted to
            be faster than one stream.
        restore: A function that undoes the changes of a replay.

    Raises:
        CannotFork: A capture on several streams would not be safe.
    """
    try:
        traces = _traces(device, generators, segments, restore if device.measures_operators else None)
    except RuntimeError:
        if not device.measures_operators:
            raise
        traces = _traces(device, generators, segments, None)
    warm = getattr(device, "warm_lanes", None)
    found: list[Captured] = []
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for count in counts or _LANES:
        plans = [plan(list(trace.ops), count) for trace in traces]
        shape = tuple(each.lanes for each in plans)
        serial = sum(each.serial_seconds for each in plans)
        if shape in seen or (counts is None and sum(each.seconds for each in plans) > _WORTH * serial):
            continue
        seen.add(shape)
        if warm is not None:
            warm(count)
        found.append(_forked(device, pool, generators, segments, traces, plans))
    return found


def _traces(
    device: CaptureDevice,
    generators: list[torch.Generator],
    segments: list[Segment],
    restore: Callable[[], None] | None,
) -> list[Trace]:
    """Captures each segment on one stream, and returns the segment's operators with their dependencies. If `restore` is
    not None, replays the captures twice to measure how long each operator takes."""
    modes: list[Tracing] = []

    def tracing(_: int) -> AbstractContextManager[object]:
        modes.append(Tracing(device, timed=restore is not None))
        return modes[-1]

    traced = _capture(device, device.new_pool(), generators, segments, 1, tracing)
    try:
        if restore is not None:
            for _ in range(2):
                restore()
                traced.replay()
            device.synchronize()
        return [mode.trace() for mode in modes]
    finally:
        for mode in modes:
            mode.release()
        traced.reset()


def _forked(
    device: CaptureDevice,
    pool: Pool,
    generators: list[torch.Generator],
    segments: list[Segment],
    traces: list[Trace],
    plans: list[Plan],
) -> Captured:
    modes: list[Forking] = []

    @contextmanager
    def forking(segment: int) -> Iterator[None]:
        mode = Forking(device, traces[segment], plans[segment])
        modes.append(mode)
        try:
            with mode:
                yield
        except BaseException:
            with contextlib.suppress(CannotFork):
                mode.join()
            raise
        mode.join()

    captured = _capture(device, pool, generators, segments, plans[0].count, forking)
    captured.waits = sum(mode.waits for mode in modes)
    for mode in modes:
        mode.release()
    return captured


def _capture(
    device: CaptureDevice,
    pool: Pool,
    generators: list[torch.Generator],
    segments: list[Segment],
    lanes: int,
    mode_of: Callable[[int], AbstractContextManager[object]],
) -> Captured:
    captured = Captured(lanes)
    try:
        for place, segment in enumerate(segments):
            run = segment(captured.results)

            def whole(run: Callable[[], Any] = run, place: int = place) -> Any:
                with mode_of(place):
                    return run()

            graph, result, nodes = device.capture(pool, generators, whole)
            captured.graphs.append(graph)
            captured.results.append(result)
            known = captured.nodes is not None and nodes is not None
            captured.nodes = (captured.nodes or 0) + (nodes or 0) if known else None
    except BaseException:
        captured.reset()
        raise
    return captured
