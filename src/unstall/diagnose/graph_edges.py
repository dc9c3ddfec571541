"""The operators of a step, the edges (dependencies) between them, and the critical path: the chain
of dependent operators that takes longest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64, WaitKind
from unstall.timeline.grouping import groups

EdgeKind = Literal["data", "overwrite", "stream", "wait", "autograd"]


class GraphEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of a step's graph: why one node comes after another. A node is an operator, or
    several operators that were merged.

    Attributes:
        earlier: The index of the earlier node.
        later: The index of the later node.
        kind: The reason. `data`: the later node reads bytes that the earlier node wrote.
            `overwrite`: the later node overwrites bytes that the earlier node used. `stream`: the
            later node comes next on the same stream. `wait`: the stream of the later node waited
            for an event that was recorded after the earlier node. `autograd`: the later node is the
            backward operator of the earlier node.
        bytes: How many bytes the later node reads; 0 if the kind is not `data`.
        critical: Whether the critical path (the longest chain of dependent nodes) contains this
            edge.
    """

    earlier: int
    later: int
    kind: EdgeKind
    bytes: int = 0
    critical: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class StepOperators:
    """The operators of a step that launch device work, in the order of their first launch. A launch
    outside of all operators counts as an operator.

    Attributes:
        rows: For each operator, the index of its row of `timeline.host`.
        calls: For each operator, its first launch, as the index of a row of `timeline.host`.
        duration: For each operator, its device time in ns.
        operator_of: Maps an element of `rows` to the number of the operator.
        op_rows: The device ops that the operators launched, as indices of rows of
            `timeline.device`, in the order of their launches.
        op_of: For each element of `op_rows`, the number of its operator.
    """

    rows: I64
    calls: I64
    duration: I64
    operator_of: dict[int, int]
    op_rows: I64
    op_of: I64


def operators_of(run: Run, step: int) -> StepOperators:
    """Returns the operators that launch device work in one step, in the order of their first
    launch.

    `step` is the number of the step, from 1 on. An operator belongs to the step if it launches
    between the step's start and end on the host.
    """
    host, device = run.timeline.host, run.timeline.device
    begin, end = run.steps.start[step - 1], run.steps.end[step - 1]
    launch = device.launch
    launched = host.start[np.maximum(launch, 0)] if len(host) else launch
    op_rows = np.flatnonzero((launch >= 0) & (launched >= begin) & (launched < end))
    op_rows = op_rows[np.lexsort((op_rows, launched[op_rows]))]
    key = _operation(run, launch[op_rows].astype(np.int64))
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    op_of = rank[which]
    rows = key[np.sort(first)]
    calls = launch[op_rows][np.sort(first)].astype(np.int64)
    duration = np.zeros(len(rows), np.int64)
    np.add.at(duration, op_of, device.end[op_rows] - device.start[op_rows])
    number_of = {row: number for number, row in enumerate(rows.tolist())}
    return StepOperators(rows, calls, duration, number_of, op_rows, op_of.astype(np.int64))


def _operation(run: Run, rows: I64) -> I64:
    """Returns, for each of `rows`, its operator: the operator that the user's code called. A row
    outside of all operators is returned unchanged.

    `rows` and the result are indices of rows of `timeline.host`.
    """
    operation = run.places.operation[rows]
    return np.where(operation >= 0, operation, rows).astype(np.int64)


def edges_of(run: Run, step: StepOperators) -> tuple[list[GraphEdge], list[GraphEdge]]:
    """Returns `(all edges, the edges along which the critical path may run)` between the operators
    of a step.

    The critical path is the longest chain of dependent operators. If the recording says which bytes
    each operator uses, this path follows only `data` and `overwrite` edges. If it does not, the
    path may follow all edges.
    """
    edges = [*_data_edges(run, step), *_wait_edges(run, step)]
    if len(run.timeline.dependencies):
        return edges, [edge for edge in edges if edge.kind in ("data", "overwrite")]
    edges += [*_stream_edges(run, step), *_autograd_edges(run, step)]
    return edges, edges


def _data_edges(run: Run, step: StepOperators) -> list[GraphEdge]:
    needs = run.timeline.dependencies
    if not len(needs):
        return []
    sides = [_operation(run, column.astype(np.int64)).tolist() for column in (needs.earlier, needs.later)]
    total: dict[tuple[int, int], int] = defaultdict(int)
    for first, second, size in zip(*sides, needs.bytes.tolist(), strict=True):
        earlier, later = step.operator_of.get(first, -1), step.operator_of.get(second, -1)
        if 0 <= earlier < later:
            total[earlier, later] += size
    return [
        GraphEdge(earlier=earlier, later=later, kind="data" if size else "overwrite", bytes=size)
        for (earlier, later), size in total.items()
    ]


def _stream_edges(run: Run, step: StepOperators) -> list[GraphEdge]:
    stream = run.timeline.device.stream[step.op_rows]
    pairs = {
        (int(step.op_of[one]), int(step.op_of[two]))
        for _, mine in groups(stream)
        for one, two in pairwise(mine.tolist())
    }
    return [GraphEdge(earlier=one, later=two, kind="stream") for one, two in sorted(pairs) if one < two]


def _wait_edges(run: Run, step: StepOperators) -> list[GraphEdge]:
    """Returns an edge for each wait of a stream for an event.

    The edge leads from the last operator before the event to the first operator after the wait.
    """
    waits, host, device = run.timeline.waits, run.timeline.host, run.timeline.device
    launched = host.start[device.launch[step.op_rows]]
    stream = device.stream[step.op_rows]
    found = set()
    known = (waits.kind == WaitKind.STREAM_EVENT) & (waits.record >= 0)
    for row in np.flatnonzero(known).tolist():
        before = np.flatnonzero((stream == waits.on_stream[row]) & (launched <= host.start[waits.record[row]]))
        after = np.flatnonzero((stream == waits.stream[row]) & (launched >= host.start[waits.host[row]]))
        if len(before) and len(after):
            found.add((int(step.op_of[before[-1]]), int(step.op_of[after[0]])))
    return [GraphEdge(earlier=one, later=two, kind="wait") for one, two in sorted(found) if one < two]


def _autograd_edges(run: Run, step: StepOperators) -> list[GraphEdge]:
    host = run.timeline.host
    rows = np.flatnonzero(host.forward >= 0)
    sides = [_operation(run, each.astype(np.int64)).tolist() for each in (host.forward[rows], rows)]
    pairs = {
        (step.operator_of[one], step.operator_of[two])
        for one, two in zip(*sides, strict=True)
        if one in step.operator_of and two in step.operator_of
    }
    return [GraphEdge(earlier=one, later=two, kind="autograd") for one, two in sorted(pairs) if one < two]


def _predecessors(count: int, edges: Iterable[GraphEdge]) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        before[edge.later].append(edge.earlier)
    return before


def critical_path(duration: I64, edges: Sequence[GraphEdge]) -> tuple[list[int], int]:
    """Returns `(operators, time)`: the operators on the critical path, in order, and their device
    time in ns.

    The critical path is the chain of operators with the longest device time in which each operator
    depends on the one before.

    Args:
        duration: The device time of each operator, in ns.
        edges: The dependencies between the operators. Operators are given by their indices in
            `duration`.
    """
    if not len(duration):
        return [], 0
    length = duration.tolist()
    came_from = [-1] * len(length)
    for number, before in enumerate(_predecessors(len(length), edges)):
        if before:
            came_from[number] = max(before, key=lambda each: (length[each], -each))
            length[number] += length[came_from[number]]
    last = int(np.argmax(length))
    span, path = length[last], []
    while last >= 0:
        path.append(last)
        last = came_from[last]
    return path[::-1], span


def most_at_once(duration: I64, edges: Sequence[GraphEdge]) -> int:
    """Returns the largest number of operators that would run at the same time, if each started as
    soon as the operators on which it depends have ended.

    Args:
        duration: The device time of each operator, in ns.
        edges: The dependencies between the operators. Operators are given by their indices in
            `duration`.
    """
    ends: list[int] = []
    for number, before in enumerate(_predecessors(len(duration), edges)):
        ends.append(max((ends[each] for each in before), default=0) + int(duration[number]))
    end = np.array(ends, np.int64)
    start = end - duration
    times = np.concatenate((start, end))
    order = np.lexsort((np.repeat((1, 0), len(end)), times))  # at one time, ends come first
    return int(np.cumsum(np.repeat((1, -1), len(end))[order]).max(initial=0))
