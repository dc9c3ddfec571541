"""A step as a graph: its operators, their dependencies, the critical path, and what could run in parallel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.diagnose.graph_edges import (
    EdgeKind,
    GraphEdge,
    StepOperators,
    critical_path,
    edges_of,
    most_at_once,
    operators_of,
)
from unstall.diagnose.graph_folding import Folded, Path, folded, runs
from unstall.diagnose.run import Run
from unstall.timeline.columns import I64, HostKind
from unstall.timeline.grouping import groups

GRAPH_SCHEMA = "unstall.graph/1"
_NODE = "autograd::engine::evaluate_function: "


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a step's graph: one operator, or several operators that were merged.

    Attributes:
        name: The name of the operators. If their names differ, the frame that called them, such as
            "train.py:20 in forward".
        where: The source line of the operators; "" if it is not known, or if the names of the
            operators differ.
        backward: Whether the operators run in a backward pass. If so, `where` is the line of the
            forward operator.
        operators: The number of operators.
        device_ns: The device time of all operators together.
        at_once: The largest number of the operators that would run at the same time, if each
            started as soon as the operators on which it depends have ended.
        streams: The numbers of the streams on which the operators ran, as the recorder wrote them.
        critical: Whether at least one of the operators is on the critical path: the longest chain
            of dependent operators.
    """

    name: str
    where: str
    backward: bool
    operators: int
    device_ns: int
    at_once: int
    streams: tuple[int, ...]
    critical: bool


class CriticalPart(msgspec.Struct, frozen=True, kw_only=True):
    """Operators with the same name and source line, put together. If they are on the critical path,
    they follow each other on it. If they are beside it, they are all such operators of the step.

    The critical path is the longest chain of dependent operators. `device_ns` is the device time of
    the operators together.
    """

    name: str
    where: str
    backward: bool
    operators: int
    device_ns: int


class OperatorGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a step as a graph, in the JSON schema `unstall.graph/1`. Each node comes
    after the nodes on which it depends.

    Attributes:
        step: The number of the step, from 1 on.
        steps: How many steps the run has.
        knows_data: Whether it is known which operator uses which bytes. If so, the critical path
            follows only the edges of the kinds `data` and `overwrite`. If not, it may follow all
            edges.
        operators: How many operators the step has.
        folded: How operators were merged into nodes, as text; "" if each operator is a node of its
            own.
        work_ns: The device time of all operators together.
        span_ns: The device time of the operators on the critical path.
        most_at_once: The largest number of operators that would run at the same time, if each
            started as soon as the operators on which it depends have ended.
        streams: How many streams the step used.
        critical: The operators on the critical path (the longest chain of dependent operators), in
            order.
        beside: The operators that are not on the critical path, grouped by name and line, longest
            first.
    """

    schema: str = GRAPH_SCHEMA
    version: str
    path: str
    step: int
    steps: int
    knows_data: bool
    operators: int
    folded: str
    work_ns: int
    span_ns: int
    most_at_once: int
    streams: int
    critical: tuple[CriticalPart, ...]
    beside: tuple[CriticalPart, ...]
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


class _Calls(NamedTuple):
    """The operators of a step, by number: their names, their user's lines, and from where they were called."""

    names: Sequence[str]
    places: Sequence[str]
    paths: Sequence[Path]


def median_step(run: Run) -> int:
    """Returns the number of the step whose length is the median of all steps of a run. Steps are numbered from 1."""
    return int(np.argsort(run.step_lengths, kind="stable")[len(run.steps) // 2]) + 1


def operator_graph(run: Run, step: int, version: str) -> OperatorGraph:
    """Returns the graph of one step: its operators, their dependencies, and the critical path.

    Args:
        run: The recorded run.
        step: The number of the step, from 1 on.
        version: The version of unstall, for the result.
    """
    chosen = operators_of(run, step)
    edges, counting = edges_of(run, chosen)
    on_path, span = critical_path(chosen.duration, counting)
    calls = _Calls(
        [_name(run, int(row)) for row in chosen.rows],
        [_user_place(run, int(row)) for row in chosen.calls],
        [_path(run, int(row)) for row in chosen.calls],
    )
    fold = folded(calls.names, calls.paths, ((edge.earlier, edge.later) for edge in edges))
    every = list(range(len(calls.names)))
    device = run.timeline.device
    return OperatorGraph(
        version=version,
        path=run.timeline.meta.path,
        step=step,
        steps=len(run.steps),
        knows_data=len(run.timeline.dependencies) > 0,
        operators=len(every),
        folded=fold.how,
        work_ns=int(chosen.duration.sum()),
        span_ns=span,
        most_at_once=most_at_once(chosen.duration, counting),
        streams=len(np.unique(device.stream[chosen.op_rows])),
        critical=_parts(on_path, calls, chosen.duration, in_order=True),
        beside=_parts([each for each in every if each not in set(on_path)], calls, chosen.duration),
        nodes=tuple(_nodes(run, chosen, fold, calls, counting, set(on_path))),
        edges=tuple(_folded_edges(edges, fold.node, on_path, {edge.kind for edge in counting})),
    )


def _path(run: Run, row: int) -> Path:
    """Returns where a call was made. For a backward operator, returns where its forward operator
    was called. `row` is the call, as the index of a row of `timeline.host`.

    If no stack was recorded, the path has one negative number instead of frames. `_frame` converts
    this number to the name of an annotation or operator.
    """
    host, stacks = run.timeline.host, run.timeline.stacks
    forward = int(host.forward[row])
    frames, frame = [], int(host.stack[forward if forward >= 0 else row])
    while frame >= 0:
        frames.append(frame)
        frame = int(stacks.parent[frame])
    return Path(tuple(frames[::-1]) or (-2 - int(run.places.place[row]),), backward=forward >= 0)


def _nodes(
    run: Run,
    step: StepOperators,
    fold: Folded,
    calls: _Calls,
    counting: Sequence[GraphEdge],
    on_path: set[int],
) -> Iterable[GraphNode]:
    streams = run.timeline.streams.stream[run.timeline.device.stream[step.op_rows]]
    numbers = fold.node
    used: dict[int, set[int]] = defaultdict(set)
    for op, stream in zip(step.op_of.tolist(), streams.tolist(), strict=True):
        used[numbers[op]].add(stream)
    inside: dict[int, list[GraphEdge]] = defaultdict(list)
    for edge in counting:
        if numbers[edge.earlier] == numbers[edge.later]:
            inside[numbers[edge.later]].append(edge)
    for number, mine in groups(np.array(numbers, np.int64)):
        members, first = mine.tolist(), int(mine[0])
        own = [
            replace(each, earlier=members.index(each.earlier), later=members.index(each.later))
            for each in inside[number]
        ]
        several = {calls.names[each] for each in members}
        is_one = len(several) == 1
        name = calls.names[first] if is_one else _frame(run, calls.paths[first].frames[: fold.depth[number]][-1])
        yield GraphNode(
            name=name,
            where=calls.places[first] if is_one else "",
            backward=all(calls.paths[each].backward for each in members),
            operators=len(members),
            device_ns=int(step.duration[mine].sum()),
            at_once=most_at_once(step.duration[mine], own),
            streams=tuple(sorted(used[number])),
            critical=not on_path.isdisjoint(members),
        )


def _folded_edges(
    edges: Sequence[GraphEdge], numbers: Sequence[int], on_path: Sequence[int], counting: set[EdgeKind]
) -> Iterable[GraphEdge]:
    steps = set(pairwise(on_path))
    total: dict[tuple[int, int, EdgeKind], list[int]] = {}
    for edge in edges:
        earlier, later = numbers[edge.earlier], numbers[edge.later]
        if earlier == later:
            continue
        size = total.setdefault((earlier, later, edge.kind), [0, 0])
        size[0] += edge.bytes
        size[1] |= edge.kind in counting and (edge.earlier, edge.later) in steps
    for (earlier, later, kind), (size_bytes, critical) in sorted(total.items()):
        yield GraphEdge(earlier=earlier, later=later, kind=kind, bytes=size_bytes, critical=bool(critical))


def _parts(
    operators: Sequence[int], calls: _Calls, duration: I64, *, in_order: bool = False
) -> tuple[CriticalPart, ...]:
    """Groups operators by name and line.

    If `in_order` is set, a group has only consecutive operators, and the groups are in the order of the operators.
    Otherwise, a group has all operators of a name and line, and the longest group comes first.
    """
    labels = [(calls.names[each], calls.places[each], calls.paths[each].backward) for each in operators]
    keys: Sequence[object] = runs(labels) if in_order else labels
    found: dict[object, list[int]] = {}
    for each, key in zip(operators, keys, strict=True):
        found.setdefault(key, []).append(each)
    parts = [
        CriticalPart(
            name=calls.names[mine[0]],
            where=calls.places[mine[0]],
            backward=calls.paths[mine[0]].backward,
            operators=len(mine),
            device_ns=int(duration[mine].sum()),
        )
        for mine in found.values()
    ]
    return tuple(parts if in_order else sorted(parts, key=lambda part: -part.device_ns))


def _name(run: Run, row: int) -> str:
    host = run.timeline.host
    name = run.timeline.text(int(host.name[row])).removeprefix(_NODE)
    return name if host.kind[row] == HostKind.OP else name or "a call"


def _user_place(run: Run, row: int) -> str:
    """Returns the user's line that made a call, such as "train.py:20 in forward".

    If the line is not known, returns the name of the annotation or operator around the call.
    """
    frame = int(run.places.frame[row])
    return _frame(run, frame if frame >= 0 else -2 - int(run.places.place[row]))


def _frame(run: Run, frame: int) -> str:
    """Returns a frame as text. `frame` is a row of the timeline's stacks, or a negative number.

    If no stack was recorded, the number is -2 - place, with a place of `run.places.place`. Its text is the name of the
    annotation or operator at this place.
    """
    timeline, lines = run.timeline, run.timeline.lines
    if frame < 0:
        place = -2 - frame - len(lines)
        return timeline.strings[place].removeprefix(_NODE) if place >= 0 else ""
    line = int(timeline.stacks.line[frame])
    file = "/".join(timeline.text(int(lines.file[line])).replace("\\", "/").split("/")[-2:])
    function = timeline.text(int(lines.function[line]))
    return f"{file}:{int(lines.line[line])} {'in' if lines.exact[line] else 'def'} {function}"
