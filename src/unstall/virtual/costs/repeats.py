"""Measures a call that is repeated: in a loop, and in two loops on two streams. Needs torch and a GPU.

The loops are the branches of a CUDA graph, so that no launch of the host is in their time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch._ops import OpOverload

from unstall.virtual.costs.suite.case import Arguments

Given: TypeAlias = tuple[Arguments, Mapping[str, object]]
"""The positional and the keyword arguments of a call."""
_LONGEST_NS = 400_000
_MOST_NODES = 200
_CALLS = 24
_SLEEP_CYCLES = 100_000
_TIMES = 3
_LONGEST_CALL_NS = 5_000_000
_LEAST_NS = 100
_LEAST_BESIDE, _MOST_BESIDE = 0.9, 3.0  # what is beyond was disturbed


class Repeats(NamedTuple):
    """What a repeated call takes.

    Attributes:
        ns: How long each call of a loop takes, in ns, with the pause before the next one.
        beside: How many times as long two loops on two streams take together as one of them.
    """

    ns: float
    beside: float


class Repeater:
    """Measures repeated calls. All graphs use the same memory, one after the other."""

    def __init__(self) -> None:
        self._streams = torch.cuda.Stream(), torch.cuda.Stream()
        self._begin()

    def _begin(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._first = self._graph([lambda: torch.zeros(1, device="cuda")], (1, 0))  # keeps the memory of the pool

    def measure(self, operator: OpOverload, given: tuple[Given, Given], kernels: int, total_ns: int) -> Repeats | None:
        """Returns what a call takes that is repeated. Returns None if it cannot be captured in a CUDA
        graph, takes long, or was disturbed.

        Args:
            operator: The operator. It must not wait for the device.
            given: Its arguments in the first loop, and those in the second one.
            kernels: The number of the device ops of a call.
            total_ns: About how long they take.
        """
        if total_ns > _LONGEST_CALL_NS:
            return None
        many = max(3, min(_CALLS, _MOST_NODES // max(kernels, 1), _LONGEST_NS // max(total_ns, 1)))
        few = many // 3

        calls = [partial(operator, *args, **kwargs) for args, kwargs in given]
        torch.cuda.synchronize()  # the arguments are made on another stream
        try:
            for stream, call in zip(self._streams, calls, strict=True):
                with torch.cuda.stream(stream):
                    call()
            torch.cuda.synchronize()
            counts = (few, 0), (many, 0), (few, few), (many, many)
            short, long, short_both, both = (_ns(self._graph(calls, each)) for each in counts)
        except (RuntimeError, ValueError, TypeError):
            return None
        ns = (long - short) / (many - few)  # without what a graph takes at its start and end
        if ns < _LEAST_NS:
            return None
        beside = (both - short_both) / (long - short)
        return Repeats(ns, beside) if _LEAST_BESIDE < beside < _MOST_BESIDE else None

    def _graph(self, calls: Sequence[Callable[[], object]], counts: tuple[int, int]) -> torch.cuda.CUDAGraph:
        """Returns a graph with a branch for each of two calls, which it makes as often as `counts` says."""
        (main, other), (first, second) = self._streams, counts
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(main):
            graph.capture_begin(pool=self._pool)
            try:
                if second:
                    other.wait_stream(main)
                    with torch.cuda.stream(other):
                        for _ in range(second):
                            calls[1]()
                for _ in range(first):
                    calls[0]()
                if second:
                    main.wait_stream(other)
            finally:
                self._end_capture(graph)
        return graph

    def _end_capture(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a capture. If a call spoilt it, `capture_end` raises, and leaves the memory pool and the random
        numbers of the device to the graph (torch 2.11); they are taken back.
        """
        try:
            graph.capture_end()
        except RuntimeError:
            torch.cuda.synchronize()
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
            for generator in torch.cuda.default_generators:
                generator.graphsafe_set_state(generator.clone_state())
            self._begin()
            raise


def _ns(graph: torch.cuda.CUDAGraph) -> float:
    """Returns how long a graph takes, in ns."""
    graph.replay()
    times: list[float] = []
    for _ in range(_TIMES):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(_SLEEP_CYCLES)
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        times.append(1e6 * float(first.elapsed_time(last)))
    return statistics.median(times)
