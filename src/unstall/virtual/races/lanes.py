"""The log as lanes: streams, and the parts of a graph that were captured on other streams than its first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import distinct
from unstall.virtual.log import LogCode

WORK = (LogCode.LAUNCH, LogCode.COPY, LogCode.SLEEP)
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
    """One captured graph: its nodes run when it is launched, those of `origin` on the launching stream."""

    number: int
    nodes: I64  # records, ascending
    lanes: I32  # of each node: -1 for the launching stream's, else a lane of the graph's own
    own: tuple[int, ...]  # those lanes
    launches: I64  # records


@dataclass(frozen=True, eq=False, slots=True)
class StreamLanes:
    """Each record's lane, and when it runs.

    A position is a record's place in what runs: captured records take theirs within each launch of the graph, right
    before the launch's own position.
    """

    of: I32  # by record: its lane, the host's for what is no work of a stream
    position: I64  # by record
    captured: Bool  # by record: runs only within launches
    graphs: tuple[GraphLanes, ...]
    device: I32  # by lane
    stream: I64  # by lane
    host: int  # the number of the lane that stands for the host: one more than the last


def lanes_of(records: np.ndarray) -> StreamLanes:
    """Number the streams, and lay out the graphs."""
    code = records["code"]
    host_only = ~np.isin(code, _ON_A_STREAM)
    keys = (records["stream"] << 8) | (records["device"].astype(np.int64) & 0xFF)
    found, lane = distinct(keys)
    device = (found & 0xFF).astype(np.int8).astype(np.int32)
    captured = np.zeros(len(records), dtype=np.bool_)
    graphs: list[GraphLanes] = []
    owners: list[int] = []  # lanes of which the graphs' own are copies
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
    """The graph captured from this record on; the lanes that it needs are appended to `owners`."""
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
                continue  # another stream's work, which is not captured
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
