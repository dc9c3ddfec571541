"""Graphs that fork and join, captured and launched on the virtual GPU of round figures."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace
from virtual.simulate.logs import Log
from virtual.simulate.runs import begin

from unstall.timeline.columns import Streams, Timeline
from unstall.timeline.grouping import groups
from unstall.virtual.log import LogCode

CAPTURING = 20  # the stream of lane 0; of lane n it is this + n
_GRAPH = 1


@dataclass(frozen=True, slots=True)
class Node:
    """A kernel of a graph."""

    lane: int
    ns: int
    fills: bool = False  # a long one that does then leaves no room for another of its kind
    waits_for: tuple[int, ...] = ()  # lanes: for all that they were given so far
    name: str = "kernel"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a program that launches one graph."""

    nodes: tuple[Node, ...]
    before_ns: int = 0  # a kernel launched before the graph
    after_ns: int = 0  # … and after it
    waits: bool = True  # for the device, at its end


def run(step: Step, steps: int = 4) -> Timeline:
    """What happens when the graph is captured and launched once a step."""
    log, simulator = begin()
    _capture(log, step.nodes)
    for number in range(steps):
        with log.mark(f"ProfilerStep#{number}"):
            if step.before_ns:
                log.launch(step.before_ns, fills=False)
            log.write(LogCode.GRAPH_LAUNCH, _GRAPH)
            if step.after_ns:
                log.launch(step.after_ns, fills=False)
            if step.waits:
                log.write(LogCode.SYNC_STREAM)
    return simulator.timeline()


def _capture(log: Log, nodes: tuple[Node, ...]) -> None:
    log.write(LogCode.CAPTURE_BEGIN, _GRAPH, 77, stream=CAPTURING)
    event, lanes = 0, {0}
    for node in (*nodes, Node(0, 0, waits_for=tuple(sorted({node.lane for node in nodes} - {0})))):
        for lane in node.waits_for if node.lane in lanes else {*node.waits_for, 0}:
            event += 1
            log.write(LogCode.EVENT_RECORD, event, stream=CAPTURING + lane)
            log.write(LogCode.EVENT_WAIT, event, stream=CAPTURING + node.lane)
        lanes.add(node.lane)
        if node.ns:
            log.launch(node.ns, stream=CAPTURING + node.lane, fills=node.fills, name=node.name)
    log.write(LogCode.CAPTURE_END, _GRAPH, stream=CAPTURING)


@st.composite
def graphs(draw: st.DrawFn, fills: bool = True) -> tuple[Node, ...]:
    """Forks and joins of up to four branches, in any order; the first node is the capturing stream's."""
    nodes: list[Node] = []
    for number in range(draw(st.integers(1, 25))):
        begun = sorted({0, *(node.lane for node in nodes)})
        nodes.append(
            Node(
                lane=draw(st.integers(0, 3)) if number else 0,
                ns=draw(st.integers(700, 30_000)),
                fills=fills and draw(st.booleans()),
                waits_for=tuple(sorted(draw(st.sets(st.sampled_from(begun), max_size=2)))),
                name=f"kernel_{number % 5}",
            )
        )
    return tuple(nodes)


def steps() -> st.SearchStrategy[Step]:
    some = st.sampled_from((0, 2_000, 40_000))
    return st.builds(Step, graphs(), some, some, st.booleans())


def scattered(timeline: Timeline, chance: Random, streams: int = 6) -> Timeline:
    """Launches of several branches, each on streams of the graph executor's own: on any that is free."""
    device = timeline.device
    stream = device.stream.copy()
    first = len(timeline.streams)
    for number, mine in enumerate(rows for _, rows in groups(device.launch)):
        if len(set(device.stream[mine].tolist())) < 2:
            continue
        free = [0] * streams
        for nth, op in enumerate(mine.tolist()):
            lanes = [lane for lane in range(streams) if free[lane] <= device.start[op]]
            lane = nth if nth < 2 else chance.choice(lanes)  # on two at least
            free[lane] = int(device.end[op])
            stream[op] = first + number * streams + lane
    more = int(stream.max()) + 1 - first
    known = timeline.streams
    numbers = np.append(known.stream, 100 + np.arange(more))
    streams_of = Streams(np.append(known.device, np.zeros(more, np.int32)), numbers)
    return replace(timeline, device=replace(device, stream=stream), streams=streams_of)
