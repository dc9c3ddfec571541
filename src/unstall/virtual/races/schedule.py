"""Lists the log records that order work or use shared memory, in the order in which the records run."""

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
    """Columns with one row for each log record that matters for races, sorted by position."""

    position: I64
    record: I64
    launch: I64  # the GRAPH_LAUNCH record that ran this node, or -1 outside graphs
    lane: I32
    code: I32  # LogCode, or BEGIN_LAUNCH
    graph: I64  # the number of the graph of this node, or -1; events are separate for each graph


def schedule(records: np.ndarray, lanes: StreamLanes, using: I64, allocations: I64) -> Schedule:
    """Returns the log records that matter for races, in the order in which the records run.

    Args:
        records: The records of the log.
        lanes: The lane and the position of each record.
        using: The numbers of the records that use shared memory.
        allocations: The allocations whose MALLOC, FREE and USE_STREAM records are included.
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
    """Returns, for each record, whether the record is a copy that is complete when the host call of the copy returns.

    A non_blocking host-to-device copy from pageable memory returns when its data is staged. After the return, the
    program may overwrite the source, although the copy may not be complete.
    """
    flags = records["flags"]
    direction = flags & DIRECTION_BITS
    download = direction == CopyFlag.DEVICE_TO_HOST
    blocking = ((flags & CopyFlag.NON_BLOCKING) == 0) | ((flags & CopyFlag.VALUE) != 0)
    pageable_download = download & ((flags & CopyFlag.PINNED) == 0)
    with_host = download | (direction == CopyFlag.HOST_TO_DEVICE)
    waits: np.ndarray = (records["code"] == LogCode.COPY) & with_host & (blocking | pageable_download)
    return waits
