"""Lists the records of the log that order work, or use memory of several lanes, in the order in
which they run.

A lane is a stream, or a branch of a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, I64
from unstall.virtual.log import DIRECTION_BITS, CopyFlag, LogCode
from unstall.virtual.races.lanes import StreamLanes

BEGIN_LAUNCH = 255  # pseudo code before a graph's nodes; its GRAPH_LAUNCH comes after them
_ORDERING = (
    *(LogCode.EVENT_RECORD, LogCode.EVENT_WAIT, LogCode.SYNC_EVENT, LogCode.SYNC_STREAM, LogCode.SYNC_DEVICE),
    *(LogCode.GRAPH_LAUNCH, LogCode.EMPTY_CACHE),
)
_OF_ALLOCATIONS = (LogCode.MALLOC, LogCode.FREE, LogCode.USE_STREAM)


@dataclass(frozen=True, eq=False, slots=True)
class Schedule:
    """The records of the log that matter for races, one row for each, in the order in which they
    run. A record that is part of a CUDA graph has a row for each launch of the graph.

    Attributes:
        position: The place in the order.
        record: The number of the record.
        launch: For a part of a graph, the number of the record that launched the graph; else -1.
        lane: The lane: a stream, or a branch of a graph.
        code: What the record says, as `LogCode`; or BEGIN_LAUNCH.
        graph: For a part of a graph, the graph's number; else -1. Each graph has its own events.
    """

    position: I64
    record: I64
    launch: I64
    lane: I32
    code: I32
    graph: I64


def schedule(records: np.ndarray, lanes: StreamLanes, using: I64, allocations: I64) -> Schedule:
    """Returns the records that matter for races, in the order in which they run.

    Args:
        records: The records of the log.
        lanes: The lane and the position of each record.
        using: The numbers of the records that use memory of several lanes.
        allocations: The numbers of the allocations of which the records MALLOC, FREE and USE_STREAM
            are included.
    """
    code = records["code"]
    matters = np.isin(code, _ORDERING) | waits_for_copy(records)
    matters |= np.isin(code, _OF_ALLOCATIONS) & np.isin(records["a"], allocations)
    matters[using] = True
    direct = np.flatnonzero(matters & ~lanes.captured)
    none = np.full(len(direct), -1, dtype=np.int64)
    parts = [(lanes.position[direct], direct, none, lanes.of[direct], code[direct].astype(np.int32), none)]
    for graph in lanes.graphs:
        chosen = np.flatnonzero(matters[graph.nodes])
        nodes, own = graph.nodes[chosen], graph.lanes[chosen]
        for launch in graph.launches.tolist():
            start = int(lanes.position[launch]) - len(graph.nodes)
            lane = lanes.of[launch]
            rows = (np.append(start - 1, start + chosen), np.append(launch, nodes))
            part = (np.full(len(chosen) + 1, launch), np.append(lane, np.where(own < 0, lane, own)))
            codes = np.append(BEGIN_LAUNCH, code[nodes])
            parts.append((*rows, *part, codes, np.full(len(chosen) + 1, graph.number)))
    position, record, launched, lane, kind, of_graph = map(np.concatenate, zip(*parts, strict=True))
    order = np.argsort(position, kind="stable")
    return Schedule(
        position[order],
        record[order].astype(np.int64),
        launched[order].astype(np.int64),
        lane[order].astype(np.int32),
        kind[order].astype(np.int32),
        of_graph[order].astype(np.int64),
    )


def waits_for_copy(records: np.ndarray) -> np.ndarray:
    """Returns, for each record, whether it is a copy that is done when the call of the host
    returns.

    A copy to the device with `non_blocking` from pageable memory is not: the call returns when the
    data is staged. The program may then overwrite the source, although the copy may still run.
    """
    flags = records["flags"]
    direction = flags & DIRECTION_BITS
    download = direction == CopyFlag.DEVICE_TO_HOST
    blocking = ((flags & CopyFlag.NON_BLOCKING) == 0) | ((flags & CopyFlag.VALUE) != 0)
    pageable_download = download & ((flags & CopyFlag.PINNED) == 0)
    with_host = download | (direction == CopyFlag.HOST_TO_DEVICE)
    waits: np.ndarray = (records["code"] == LogCode.COPY) & with_host & (blocking | pageable_download)
    return waits
