"""Chains of calls: from a line of the program over Python's frames and operators to the calls of
CUDA and the device work that these launch.

All links of a chain were recorded: nesting on the thread, call stacks, and the launch of each
device op.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from unstall.diagnose.run import Run
from unstall.locate.torch_sources import source_files
from unstall.result import Where
from unstall.timeline.columns import DeviceKind, HostKind

CHAIN_SCHEMA = "unstall.chain/1"
_MOST_LEAVES = 6  # calls of the innermost operator, and device ops of one call
_CALLS = range(HostKind.LAUNCH, HostKind.CALL + 1)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
LinkKind = Literal["line", "frame", "operator", "annotation", "call", "device"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a chain of calls, which leads from a source line to work on a device.

    Attributes:
        kind: What the link is: a line of the program, a frame of Python, an operator, an
            annotation, a call of CUDA, or device work.
        depth: How deeply the link is nested in calls; 0 for the line. A link is called by the
            nearest earlier link that has a smaller depth.
        name: The name of the operator, annotation, call or device op. For a line or a frame, its
            file, line and function.
        takes_ns: The duration of the link, including all that it calls. None if the duration is
            unknown, for example because the recorder took stacks but did not time frames.
        own_ns: The duration of the link without the links that it calls. None for device work, or
            if it is unknown.
        after_ns: For device work, the time from the start of the call that launched it to the start
            of the work. Otherwise None.
        bytes: For a copy, how many bytes it moves. None for other links, or if it is unknown.
        stream: For device work, the number of the stream, as the recorder wrote it. Otherwise None.
        files: The source files of PyTorch that implement the operator, if they are known.
        left_out: How many calls or device ops of this link are not shown as links of their own.
    """

    kind: LinkKind
    depth: int
    name: str
    takes_ns: int | None = None
    own_ns: int | None = None
    after_ns: int | None = None
    bytes: int | None = None
    stream: int | None = None
    files: tuple[str, ...] = ()
    left_out: int = 0


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of nested calls, from one source line to work on a device or to a wait, with all its
    recorded repetitions.

    Two chains count as repetitions of each other if they call the same names in the same order.

    Attributes:
        where: The line. For a backward pass, the line of the forward operator.
        backward: Whether the calls belong to a backward pass. If so, the first link is the line
            that called the backward pass, if this line is known.
        count: The number of repetitions.
        total_ns: The time of all repetitions: the host's time plus the device's time.
        links: The links of one repetition: of the one whose time is the median.
    """

    where: Where
    backward: bool
    count: int
    total_ns: int
    links: tuple[Link, ...]


class Chains(msgspec.Struct, frozen=True, kw_only=True):
    """The chains of calls of one source line, in the JSON schema `unstall.chain/1`. The chain that
    takes the most time is first.
    """

    schema: str = CHAIN_SCHEMA
    version: str
    path: str
    at: str
    chains: tuple[Chain, ...]


def chains_at(run: Run, file: str, line: int) -> tuple[Chain, ...]:
    """Returns the chains of calls that lead from one source line to device work and to waits.

    Args:
        run: The recorded run.
        file: The recorded path of the source file, or the last parts of it. For example,
            "models/net.py" finds "/home/me/models/net.py".
        line: The line number.
    """
    timeline, places = run.timeline, run.places
    lines, host = timeline.lines, timeline.host
    rows_of_line = [
        row
        for row in np.flatnonzero(lines.line == line).tolist()
        if f"/{timeline.text(int(lines.file[row]))}".endswith(f"/{file}")
    ]
    here = np.isin(places.place, rows_of_line)
    launching = np.zeros(len(host), np.bool_)
    launching[timeline.device.launch[timeline.device.launch >= 0]] = True
    calls = np.flatnonzero(here & (launching | (host.kind == HostKind.SYNC)))
    # All calls of an operator are leaves of one chain. The operator's first launch stands for these calls, or its first
    # wait if it launches nothing.
    calls = calls[np.argsort(~launching[calls], kind="stable")]
    _, first = np.unique(np.where(host.op[calls] >= 0, host.op[calls], -1 - calls), return_index=True)
    groups: dict[tuple[int | str, ...], list[list[int]]] = defaultdict(list)
    for row in np.sort(calls[first]).tolist():
        path = _path(run, row)
        groups[(int(places.place[row]), *(_name(run, each) for each in path))].append(path)
    found = [_chain(run, paths) for paths in groups.values()]
    return tuple(sorted(found, key=lambda chain: (-chain.total_ns, str(chain.where))))


def _path(run: Run, row: int) -> list[int]:
    """Returns the nested host events around `row`, outermost first, and `row` itself at the end.

    The outermost event is the one that the user's code called directly.
    """
    host, places = run.timeline.host, run.places
    top = int(places.top_op[row])
    path, inside_top = [row], row == top
    while (row := int(host.parent[row])) >= 0:
        if inside_top or top < 0:
            is_frame = host.kind[row] == HostKind.PYTHON and host.stack[row] >= 0
            if not is_frame or places.is_user_frame[host.stack[row]]:
                break
        path.append(row)
        inside_top |= row == top
    return path[::-1]


def _chain(run: Run, paths: list[list[int]]) -> Chain:
    host, places = run.timeline.host, run.places
    time = [_time(run, path) for path in paths]
    path = paths[int(np.argsort(time, kind="stable")[len(time) // 2])]
    rows = np.array([each[-1] for each in paths], np.int64)
    where = places.where(int(places.place[path[-1]]), rows, op=None)
    return Chain(
        where=where,
        backward=bool((host.forward[path] >= 0).any()),
        count=len(paths),
        total_ns=sum(time),
        links=tuple(_links(run, path, where)),
    )


def _time(run: Run, path: list[int]) -> int:
    """Returns the host time of the first event in `path`, plus the device time of the work that the last one launched.

    The first event contains all others. Times are in ns.
    """
    host, device = run.timeline.host, run.timeline.device
    ops = run.ops_of(np.array(path[-1:], np.int64))
    return int(host.end[path[0]] - host.start[path[0]]) + int((device.end[ops] - device.start[ops]).sum())


def _links(run: Run, path: list[int], where: Where) -> Iterable[Link]:
    timeline = run.timeline
    host = timeline.host
    yield Link(kind="line", depth=0, name=_origin(run, path, where))
    depth = 1
    if not any(host.kind[row] == HostKind.PYTHON for row in path):
        for name in _frames_below(run, path):
            yield Link(kind="frame", depth=depth, name=name)
            depth += 1
    leaves = _leaves(run, path)
    shown = leaves[:_MOST_LEAVES]
    for row, inner in pairwise(path):
        is_last = inner == path[-1]
        yield _host_link(run, row, depth, leaves if is_last else [inner], len(leaves) - len(shown) if is_last else 0)
        depth += 1
    for row in shown:
        ops = run.ops_of(np.array([row], np.int64)).tolist()
        yield _host_link(run, row, depth, [], max(len(ops) - _MOST_LEAVES, 0))
        yield from (_device_link(run, row, op, depth + 1) for op in ops[:_MOST_LEAVES])


def _leaves(run: Run, path: list[int]) -> list[int]:
    """Returns the CUDA calls of the innermost operator, in order.

    If the last event of the path is not a direct call of an operator in the path, returns only this event.
    """
    host = run.timeline.host
    last = path[-1]
    parent = int(host.parent[last])
    if len(path) < 2 or parent != path[-2] or host.kind[parent] != HostKind.OP:
        return [last]
    inside = slice(parent + 1, parent + 1 + int(np.searchsorted(host.start[parent + 1 :], host.end[parent], "left")))
    rows = np.arange(len(host))[inside]
    calls: list[int] = rows[(host.parent[rows] == parent) & np.isin(host.kind[rows], _CALLS)].tolist()
    return calls


def _host_link(run: Run, row: int, depth: int, within: list[int], left_out: int) -> Link:
    timeline = run.timeline
    host = timeline.host
    kind = HostKind(host.kind[row])
    name = _name(run, row)
    takes = int(host.end[row] - host.start[row])
    is_read_off = kind is HostKind.PYTHON and timeline.meta.frames_at_calls
    return Link(
        kind=_kind(kind),
        depth=depth,
        name=name,
        takes_ns=None if is_read_off else takes,
        own_ns=None if is_read_off else takes - sum(int(host.end[each] - host.start[each]) for each in within),
        files=source_files(name),
        left_out=left_out,
    )


def _name(run: Run, row: int) -> str:
    """Returns the name of a host event, without the address of the object whose method it is."""
    return _ADDRESS.sub("", run.timeline.text(int(run.timeline.host.name[row])))


def _kind(kind: HostKind) -> LinkKind:
    if kind is HostKind.PYTHON:
        return "frame"
    if kind is HostKind.ANNOTATION:
        return "annotation"
    return "operator" if kind is HostKind.OP else "call"


def _device_link(run: Run, row: int, op: int, depth: int) -> Link:
    timeline, device = run.timeline, run.timeline.device
    size = int(device.bytes[op])
    return Link(
        kind="device",
        depth=depth,
        name=timeline.text(int(device.name[op])),
        takes_ns=int(device.end[op] - device.start[op]),
        after_ns=int(device.start[op] - timeline.host.start[row]),
        bytes=size if size >= 0 and device.kind[op] != DeviceKind.KERNEL else None,
        stream=int(timeline.streams.stream[device.stream[op]]),
    )


def _frames_below(run: Run, path: list[int]) -> list[str]:
    """Returns the frames between the user's frame and the outermost event of the path, outermost first."""
    stacks, places = run.timeline.stacks, run.places
    frame, names = int(run.timeline.host.stack[path[0]]), []
    while frame >= 0 and not places.is_user_frame[frame]:
        names.append(_frame(run, frame))
        frame = int(stacks.parent[frame])
    return names[::-1] if frame >= 0 else []


def _origin(run: Run, path: list[int], where: Where) -> str:
    """Returns the user's line that made the calls in `path`.

    In a backward pass, this is the line that called the backward pass. `where` has the line of the forward operator; it
    is used only if no user frame is known.
    """
    stacks, places = run.timeline.stacks, run.places
    frame = int(run.timeline.host.stack[path[0]])
    while frame >= 0 and not places.is_user_frame[frame]:
        frame = int(stacks.parent[frame])
    return _frame(run, frame) if frame >= 0 else f"{where.file}:{where.line} in {where.function}"


def _frame(run: Run, frame: int) -> str:
    timeline = run.timeline
    line = int(timeline.stacks.line[frame])
    number = int(timeline.lines.line[line])
    file, function = (timeline.text(int(column[line])) for column in (timeline.lines.file, timeline.lines.function))
    if number < 0:
        return _ADDRESS.sub("", function)
    return f"{file}:{number} {'in' if timeline.lines.exact[line] else 'def'} {function}"
