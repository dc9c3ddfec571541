"""Converts the call stacks of host events into Python frames, which are spans of time. The spans
are nested like the calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.locate.kinds import is_asleep
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I32, I64, Bool, Host, HostKind, Stacks, Timeline
from unstall.virtual.timeline.added_rows import with_host_rows
from unstall.virtual.timeline.window import FOREVER, cut


@dataclass(frozen=True, eq=False, slots=True)
class FrameSlices:
    """Python frames: one row for each span of time in which a frame stays on one line. The span of
    a caller encloses those of what it calls.
    """

    thread: I32  # row of Threads
    start: I64
    end: I64
    line: I32  # row of Lines
    stack: I32  # row of Stacks


def with_frames(timeline: Timeline) -> Timeline:
    """Returns the timeline with its Python frames as host events, like those in a trace, unless it
    has frames already. All times are shifted so that the first event begins at 0.
    """
    if not is_frame(timeline).any():
        found, names = slices_of(timeline), line_texts(timeline)
        frames = found.thread, found.start, found.end, [names[line] for line in found.line.tolist()], found.stack
        timeline = with_host_rows(timeline, HostKind.PYTHON, *frames)
    begins = [int(table.start.min()) for table in (timeline.host, timeline.device) if len(table)]
    return cut(timeline, min(begins), FOREVER) if begins else timeline


def is_frame(timeline: Timeline) -> Bool:
    """Returns a mask of `timeline.host`: the events that are Python frames. Events of sleep are no frames."""
    frames: Bool = (timeline.host.kind == HostKind.PYTHON) & ~is_asleep(timeline)
    return frames


def slices_of(timeline: Timeline) -> FrameSlices:
    """Returns the spans of Python frames. A span lasts from the start of the first to the end of
    the last of successive events that have the frame in their call stacks.

    If an event lies within an operator, frames that the operator's own call stack has, too, do not
    count for the event. An annotation may begin in one frame and end in another. So its beginning
    and its end count as two events.
    """
    host = timeline.host
    solid = host.kind != HostKind.ANNOTATION
    around = nearest(host.parent, solid & (host.stack >= 0))
    outer = np.where(host.parent >= 0, around[host.parent], -1).astype(np.int32)
    rows = np.flatnonzero(solid & (host.stack >= 0))
    start, end = host.start[rows], host.end[rows]
    spans, before, after = _borders(host)
    rows, start, end = (
        np.concatenate(of) for of in ((rows, spans, spans), (start, before, after), (end, before, after))
    )
    nodes = _nodes(timeline.stacks)
    chains = np.where(nodes >= 0, np.append(timeline.stacks.line, -1)[nodes], -1)
    # Sorted by the enclosing operator, so that the events within one are adjacent, as are the outermost of a thread.
    order = np.lexsort((start, outer[rows], host.thread[rows]))
    rows, start, end = rows[order], start[order], end[order]
    stack, within, thread = host.stack[rows], outer[rows], host.thread[rows]
    shown = _common(chains, stack, np.where(within >= 0, host.stack[np.maximum(within, 0)], -1))
    same = np.append(False, (within[1:] == within[:-1]) & (thread[1:] == thread[:-1]))[: len(rows)]
    parts: list[tuple[I32, I64, I64, I32, I32]] = []
    for level in range(chains.shape[1]):
        line = np.where(shown <= level, chains[stack, level], -1)
        same &= np.append(False, line[1:] == line[:-1])[: len(rows)]
        stops = np.append(np.flatnonzero(~same), len(rows))
        begins = np.flatnonzero(~same & (line >= 0))
        last = stops[np.searchsorted(stops, begins, side="right")] - 1
        parts.append((thread[begins], start[begins], end[last], line[begins], nodes[stack[begins], level]))
    if not parts:
        none, never = np.zeros(0, np.int32), np.zeros(0, np.int64)
        return FrameSlices(none, never, never, none, none)
    return FrameSlices(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _borders(host: Host) -> tuple[I64, I64, I64]:
    """Returns `(rows, before, after)`: the rows of the annotations in the table `Host`, and for
    each, the times 1 ns before and 1 ns after it. The frames around an annotation also last over
    these two times.

    An annotation is left out if another event begins or ends at one of these times.
    """
    taken = np.concatenate((host.start, host.end))
    rows = np.flatnonzero((host.kind == HostKind.ANNOTATION) & (host.stack >= 0))
    before, after = host.start[rows] - 1, host.end[rows] + 1
    apart = (before >= 0) & ~np.isin(before, taken) & ~np.isin(after, taken)
    return rows[apart], before[apart], after[apart]


def line_texts(timeline: Timeline) -> list[str]:
    """Returns, for each row of the table `Lines`, the name that Kineto gives to a frame on this
    line, such as "train.py(12): main".
    """
    lines, strings = timeline.lines, timeline.strings
    return [
        f"{strings[file]}({line}): {strings[function]}" if line >= 0 else strings[function]
        for file, line, function in zip(lines.file.tolist(), lines.line.tolist(), lines.function.tolist(), strict=True)
    ]


class StackTexts(dict[int, list[str]]):
    """For each row of the table `Stacks`, the names that Kineto gives to the frames of this stack,
    the innermost first. They are worked out when they are first asked for.
    """

    def __init__(self, timeline: Timeline) -> None:
        self._stacks, self._names = timeline.stacks, line_texts(timeline)

    def __missing__(self, row: int) -> list[str]:
        frames, at = [], row
        while at >= 0:
            frames.append(self._names[self._stacks.line[at]])
            at = int(self._stacks.parent[at])
        self[row] = frames
        return frames


def _nodes(stacks: Stacks) -> I32:
    """Returns the frames of each stack as rows of the table `Stacks`, the outermost frame first.

    The array has the shape (stacks, frames). Shorter stacks have -1 after their last frame.
    """
    depth = np.zeros(len(stacks), np.int32)
    for row, parent in enumerate(stacks.parent.tolist()):
        depth[row] = depth[parent] + 1 if parent >= 0 else 1
    nodes = np.full((len(stacks), int(depth.max(initial=0))), -1, np.int32)
    for row, parent in enumerate(stacks.parent.tolist()):
        if parent >= 0:
            nodes[row] = nodes[parent]
        nodes[row, depth[row] - 1] = row
    return nodes


def _common(chains: I32, stack: I32, outer: I32) -> I64:
    """Returns, for each event, how many of its outermost frames are also the outermost frames of
    the event around it.

    Args:
        chains: For each row of the table `Stacks`, the lines of its frames, the outermost first,
            then -1.
        stack: For each event, its row in the table `Stacks`.
        outer: For each event, the row of the stack of the event around it, or -1.
    """
    alike = np.zeros(len(stack), np.int64)
    going = outer >= 0
    for level in range(chains.shape[1]):
        going = going & (chains[stack, level] == chains[outer, level]) & (chains[stack, level] >= 0)
        alike += going
    return alike
