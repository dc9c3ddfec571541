"""Divides the records of the log into lanes. A lane is a stream, or a branch of a CUDA graph.

A branch is the part of a graph that was captured on one stream. What was captured on the stream on
which the capture began is no branch: it runs on the stream that launches the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct
from unstall.virtual.log import LogCode

WORK = (LogCode.LAUNCH, LogCode.COPY, LogCode.SLEEP, LogCode.COLLECTIVE)
"""The codes of records that put work on a device."""
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
    """A captured CUDA graph, its branches and its launches. Each launch runs all nodes of the
    graph. Nodes that were captured on the stream on which the capture began run on the stream that
    launches the graph.

    Attributes:
        number: The graph's number.
        nodes: The numbers of the records that were captured, ascending.
        lanes: For each node, its branch as the number of a lane, or -1 for the stream that launches
            the graph.
        own: The lanes that are branches of this graph.
        launches: The numbers of the records that launch the graph.
    """

    number: int
    nodes: I64
    lanes: I32
    own: tuple[int, ...]
    launches: I64


@dataclass(frozen=True, eq=False, slots=True)
class StreamLanes:
    """The lane and the position of each record of the log. A lane is a stream, or a branch of a
    CUDA graph.

    Positions count in the order in which records run. The nodes of a graph run once for each
    launch: in the positions right before that of the launch.

    Attributes:
        of: For each record, its lane, or `host` if it is no work on a stream.
        position: For each record, its place in the order.
        captured: For each record, whether it runs only when a graph is launched.
        graphs: The captured graphs.
        device: For each lane, the device's index.
        stream: For each lane, the stream; for a branch, the stream on which it was captured.
        host: The number that stands for the host in `of`: one more than that of the last lane.
    """

    of: I32
    position: I64
    captured: Bool
    graphs: tuple[GraphLanes, ...]
    device: I32
    stream: I64
    host: int


def lanes_of(records: np.ndarray) -> StreamLanes:
    """Returns the lane and the position of each record of the log. A lane is a stream, or a branch of a CUDA graph."""
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
    """Returns the CUDA graph whose capture begins at the record `begin`, with its branches.

    Args:
        records: The records of the log.
        lane: For each record, the lane of its stream outside of graphs.
        begin: The number of the record at which the capture begins.
        first_own: The number of the first new lane. Each stream that joins the capture gets a new
            lane.
        owners: A list to which this adds, for each new lane, the lane of its stream outside of
            graphs.
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
