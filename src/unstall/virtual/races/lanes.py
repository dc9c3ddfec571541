"""Splits the log into lanes. A lane is a stream, or a branch of a CUDA graph. A branch is the part of a graph that was
captured on one stream. The part that was captured on the graph's first stream is not a branch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct
from unstall.virtual.log import LogCode

WORK = (LogCode.LAUNCH, LogCode.COPY, LogCode.SLEEP, LogCode.COLLECTIVE)
_NODES = (*WORK, LogCode.EVENT_RECORD, LogCode.EVENT_WAIT)
_ON_A_STREAM = (
    *_NODES,
    LogCode.SYNC_STREAM,
    LogCode.USE_STREAM,
    LogCode.MALLOC,
    LogCode.CAPTURE_BEGIN,
    LogCode.GRAPH_LAUNCH,
)


@dataclass(frozen=True, eq=False, slots=True)
class GraphLanes:
    """A captured graph and its launches. Each launch runs all nodes of the graph. Nodes that were captured on the
    graph's first stream run on the stream that launches the graph.
    """

    number: int
    nodes: I64  # record numbers, ascending
    lanes: I32  # by node: -1 for the launching stream, or one of the graph's own lanes
    own: tuple[int, ...]  # the graph's own lanes
    launches: I64  # record numbers of its launches


@dataclass(frozen=True, eq=False, slots=True)
class StreamLanes:
    """The lane and the position of each log record. A lane is a stream, or a branch of a CUDA graph.

    Positions are counted in the order in which the records run. A captured record has one position for each
    launch of its graph. This position is right before the position of the launch.
    """

    of: I32  # by record: its lane, or `host` if it is no work on a stream
    position: I64  # by record
    captured: Bool  # by record: whether it runs only in graph launches
    graphs: tuple[GraphLanes, ...]
    device: I32  # by lane
    stream: I64  # by lane
    host: int  # the lane number of the host: one more than the last lane


def lanes_of(records: np.ndarray) -> StreamLanes:
    """Returns the lane and the position of each log record."""
    code = records["code"]
    host_only = ~np.isin(code, _ON_A_STREAM)
    keys = (records["stream"] << 8) | (records["device"].astype(np.int64) & 0xFF)
    found, lane = distinct(keys)
    device = (found & 0xFF).astype(np.int8).astype(np.int32)
    captured = np.zeros(len(records), dtype=np.bool_)
    graphs: list[GraphLanes] = []
    owners: list[int] = []  # the captured stream's lane for each of the graphs' own lanes
    for begin in np.flatnonzero(code == LogCode.CAPTURE_BEGIN).tolist():
        graph = _graph(records, lane, begin, len(found) + len(owners), owners)
        captured[graph.nodes] = True
        graphs.append(graph)
    extra = np.zeros(len(records), dtype=np.int64)
    for graph in graphs:
        extra[graph.launches] = len(graph.nodes) + 1
    device = np.append(device, device[owners]) if owners else device
    stream = found >> 8
    stream = np.append(stream, stream[owners]) if owners else stream
    host = len(device)
    return StreamLanes(
        of=np.where(host_only, host, lane).astype(np.int32),
        position=np.arange(len(records), dtype=np.int64) + np.cumsum(extra),
        captured=captured,
        graphs=tuple(graphs),
        device=device,
        stream=stream,
        host=host,
    )


def _graph(records: np.ndarray, lane: I64, begin: int, first_own: int, owners: list[int]) -> GraphLanes:
    """Returns the graph whose capture begins at log record `begin`. Creates a new lane for each stream that joins the
    capture. The numbers of the new lanes begin at `first_own`. For each new lane, appends to `owners` the lane that the
    stream has outside the graph.
    """
    code, number = records["code"], int(records["a"][begin])
    later = np.flatnonzero((code[begin:] == LogCode.CAPTURE_END) & (records["a"][begin:] == number))
    end = begin + int(later[0]) if len(later) else len(records)
    inside = begin + np.flatnonzero(np.isin(code[begin:end], _NODES))
    own = {int(lane[begin]): -1}
    events: set[int] = set()
    nodes, lanes = [], []
    columns = (inside, lane[inside], code[inside], records["a"][inside])
    for record, at, kind, event in zip(*(column.tolist() for column in columns), strict=True):
        if at not in own:
            if kind != LogCode.EVENT_WAIT or event not in events:
                continue  # work on another stream, which is not captured
            own[at] = first_own + len(own) - 1
            owners.append(at)
        if kind == LogCode.EVENT_RECORD:
            events.add(event)
        nodes.append(record)
        lanes.append(own[at])
    launches = np.flatnonzero((code == LogCode.GRAPH_LAUNCH) & (records["a"] == number))
    return GraphLanes(
        number=number,
        nodes=np.array(nodes, dtype=np.int64),
        lanes=np.array(lanes, dtype=np.int32),
        own=tuple(sorted(at for at in own.values() if at >= 0)),
        launches=launches,
    )
