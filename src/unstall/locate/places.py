"""Finds, by call stacks, to which place in the user's code each host event belongs."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import msgspec
import numpy as np

from unstall.frameworks import is_framework, is_installed
from unstall.locate.operations import operations
from unstall.locate.proving import proving_frames
from unstall.locate.steps import RECORDED_STEP
from unstall.result import Caller, Where
from unstall.timeline.ancestry import nearest, outermost
from unstall.timeline.columns import I32, I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import by_text, is_in, unique

_CELL = re.compile(r"In\[\d+\]$")  # as `answers/cells.py` names a notebook's cells


class Places(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The place of every host event in the source.

    A place is a number. If the event's call stack has a line of the user's code, the place is the
    row of this line in `timeline.lines`. If it has none, the place stands for a name: the name of
    the annotation around the event, or the name of the outermost operator. The place is then
    `len(timeline.lines)` plus the index of the name in `timeline.strings`. If the event has neither
    a line nor a name, the place is -1.
    """

    timeline: Timeline
    place: I64  # by host row
    caller: I32  # by host row: row of Lines of the user's next frame outward, the program's own if there is one, or -1
    top_op: I32  # by host row: the outermost operator below the user's frame, or -1
    operation: I32  # by host row: a number that events of one operation share; see `operations`
    frame: I32  # by host row: row of Timeline.stacks of the user's innermost frame, or -1
    is_user_frame: Bool  # by row of Timeline.stacks: whether that frame is the user's
    outside: I32  # by row of Timeline.stacks: row of Lines of the frame that counts as its caller, or -1
    are_named: bool = False  # the user named the files that are the user's, by globs
    unmatched: tuple[str, ...] = ()  # the user's globs that match no recorded file

    def where(self, place: int, rows: I64 | int, op: str | None) -> Where:
        """Returns a place in the form that reports print, together with the line that calls it.

        Args:
            place: The place, as a number that `Places` uses.
            rows: The events in question, as rows of `timeline.host`. The line from which most of
                these events came is the calling line in the result. Elements that are -1 are
                ignored.
            op: The name of an operator for the result, or None.
        """
        timeline = self.timeline
        lines = timeline.lines
        if place < 0:
            return Where(op=op)
        if place >= len(lines):
            return Where(function=timeline.strings[place - len(lines)], op=op)
        rows = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        caller = self._usual_caller(place, rows[rows >= 0])
        return Where(
            file=timeline.text(int(lines.file[place])),
            line=int(lines.line[place]),
            line_is="exact" if lines.exact[place] else "def",
            function=timeline.text(int(lines.function[place])),
            op=op,
            called_from=None
            if caller < 0
            else Caller(
                file=timeline.text(int(lines.file[caller])),
                line=int(lines.line[caller]),
                function=timeline.text(int(lines.function[caller])),
            ),
        )

    def _usual_caller(self, place: int, rows: I64) -> int:
        """Returns the line from which the place is called in most of the events `rows`. The line is
        a row of `timeline.lines`, or -1 if it is not known.

        Only events at the place itself count. The caller of a backward operator is backward(), so
        backward operators count only if all events at the place are backward operators. If no event
        is at the place itself, all events are in functions that the place calls. Then the frame of
        the place is looked up in the stack of each event, and the caller of this frame counts.
        """
        at = rows[self.place[rows] == place]
        if len(at):
            forward = at[self.timeline.host.forward[at] < 0]
            return _most_common(self.caller[forward if len(forward) else at])
        frames, counts = np.unique(self.frame[rows], return_counts=True)
        own = np.array([self.around(place, int(frame)) for frame in frames], dtype=np.int32)
        return _most_common(np.repeat(_at(self.outside, own), counts))

    def around(self, place: int, frame: int) -> int:
        """Searches a call stack, from one frame outward, for a frame of the function to which a
        place belongs. Returns the first such frame, as a row of `timeline.stacks`, or -1.

        Args:
            place: The place, as a row of `timeline.lines`.
            frame: The frame to begin with, as a row of `timeline.stacks`.
        """
        stacks, lines = self.timeline.stacks, self.timeline.lines
        while frame >= 0:
            line = int(stacks.line[frame])
            same_function = (lines.file[line], lines.function[line]) == (lines.file[place], lines.function[place])
            if line == place or (lines.exact[place] and lines.exact[line] and same_function):
                return frame
            frame = int(stacks.parent[frame])
        return -1

    def op_name(self, row: int) -> str | None:
        """Returns the name of the outermost operator around a host event, or None if there is no
        operator around it. `row` is the event's row in `timeline.host`.
        """
        top = int(self.top_op[row]) if row >= 0 else -1
        return None if top < 0 else self.timeline.strings[self.timeline.host.name[top]]


def find_places(timeline: Timeline, user: Sequence[str] = (), step: str | None = None) -> Places:
    """Finds the place in the source of every host event.

    The place of a backward operator is the line of its forward operator. While `unstall.graphed`
    checks a new graph, the place of an event is a line of unstall, not the line of the user's code
    that runs during the check.

    Args:
        timeline: A recorded run.
        user: Globs of file names. If `user` is not empty, only files that match a glob count as the
            user's code.
        step: The name of the annotation around each step. This annotation is never the place of an
            event.
    """
    host = timeline.host
    mine = _user_lines(timeline, user)
    stacks = timeline.stacks
    is_user_frame = mine[stacks.line] if len(stacks) else np.zeros(0, dtype=np.bool_)
    user_node = nearest(stacks.parent, is_user_frame)
    forward = host.forward >= 0
    source = np.where(forward, host.forward, np.arange(len(host)))
    stack = host.stack[source]
    frame = _at(user_node, stack)
    own_frame = _at(user_node, host.stack)
    frame = np.where(frame >= 0, frame, own_frame).astype(np.int32)
    proving = proving_frames(timeline)
    ours = np.where(proving >= 0, proving, proving[source])
    frame = np.where(ours >= 0, ours, frame)
    line = _at(timeline.stacks.line, frame)
    outside = _at(timeline.stacks.line, _callers(timeline, is_user_frame, user_node))
    # The caller of a backward operator is the caller of backward().
    calls_backward = forward & (own_frame >= 0)
    caller = np.where(calls_backward, _at(stacks.line, own_frame), _at(outside, frame)).astype(np.int32)

    top_op = _outermost_operators(timeline, mine)
    fallback = _fallback(timeline, source, top_op, step)
    place = np.where(line >= 0, line, np.where(fallback >= 0, fallback + len(timeline.lines), -1))
    operation = operations(timeline, top_op)
    return Places(
        timeline=timeline,
        place=place.astype(np.int64),
        caller=caller,
        top_op=top_op,
        operation=operation,
        frame=frame,
        is_user_frame=is_user_frame,
        outside=outside,
        are_named=bool(user),
        unmatched=_unmatched(timeline, user),
    )


def _callers(timeline: Timeline, is_user_frame: Bool, user_node: I32) -> I32:
    """Returns the caller of each row (frame) of `timeline.stacks`. The caller is a row of `timeline.stacks`, too, or -1
    if there is no caller.

    The caller of a frame in the program's script is the next frame outward whose code belongs to the user. The caller
    of any other frame is the next frame outward that is in the script.
    """
    stacks = timeline.stacks
    outside = stacks.parent
    outer = _at(user_node, outside)
    of_program = is_in(timeline.lines.file, np.array(list(programs(timeline)), dtype=np.int64))
    in_program = is_user_frame & of_program[stacks.line] if len(stacks) else is_user_frame
    if not in_program.any():  # the program's own bottom was not recorded: an installed package is not the program
        installed = by_text(timeline.lines.file, lambda index: is_installed(timeline.text(index))) == 1
        in_program = is_user_frame & ~installed[stacks.line]
    own = _at(nearest(stacks.parent, in_program), outside)
    return np.where(~in_program & (own >= 0), own, outer).astype(np.int32)


def _most_common(lines: I32) -> int:
    """Returns the most common of the numbers in `lines` that are not negative. If several numbers are equally common,
    returns the first of them. Returns -1 if all numbers are negative."""
    found, first, counts = np.unique(lines[lines >= 0], return_index=True, return_counts=True)
    return int(found[np.lexsort((first, -counts))[0]]) if len(found) else -1


def programs(timeline: Timeline) -> set[int]:
    """Returns the files that Python ran as the program, as indices into `timeline.strings`. For a
    notebook, these are the cells of the notebook.

    A file ran as the program if the outermost frame of some stack is the file's `<module>`. It
    belongs to the user, even if it has the name of a library module, such as profile.py.
    """
    cells = by_text(timeline.lines.file, lambda index: _CELL.match(timeline.strings[index]) is not None) == 1
    if cells.any():
        return set(timeline.lines.file[cells].tolist())
    roots = timeline.stacks.line[timeline.stacks.parent < 0]
    modules = [i for i in unique(roots) if timeline.text(int(timeline.lines.function[i])) == "<module>"]
    files = {int(timeline.lines.file[i]) for i in modules}
    return {i for i in files if not timeline.strings[i].startswith("<")}


def _at(values: I32, index: I32 | I64) -> I32:
    """Returns `values[index]`. If an element of `index` is -1, so is the element of the result."""
    if not len(values):
        return np.full(len(index), -1, dtype=np.int32)
    return np.where(index >= 0, values[np.maximum(index, 0)], -1).astype(np.int32)


def _user_lines(timeline: Timeline, user: Sequence[str]) -> Bool:
    """Returns a mask of the rows of `timeline.lines` that are in the user's files."""
    lines = timeline.lines
    own = programs(timeline)

    def counts(index: int) -> bool:
        path = timeline.strings[index]
        if user:
            return any(_matches(path, glob) for glob in user)
        return index in own or not is_framework(path)

    return by_text(lines.file, counts).astype(np.bool_)


def _matches(path: str, glob: str) -> bool:
    return bool(path) and fnmatch.fnmatch(path, f"*{glob.lstrip('*')}")


def _unmatched(timeline: Timeline, user: Sequence[str]) -> tuple[str, ...]:
    files = [timeline.text(int(index)) for index in unique(timeline.lines.file)]
    return tuple(glob for glob in user if not any(_matches(path, glob) for path in files))


def _outermost_operators(timeline: Timeline, mine: Bool) -> I32:
    """Returns the row of the outermost operator around each host event, or -1.

    Only operators that are called inside the user's innermost frame count. `mine` is a mask of the rows of
    `timeline.lines` that are in the user's files.
    """
    host = timeline.host
    line = _at(timeline.stacks.line, host.stack)
    users = np.zeros(len(host), dtype=np.bool_)
    if len(mine):
        users = (host.kind == HostKind.PYTHON) & (line >= 0) & mine[np.maximum(line, 0)]
    return outermost(host.parent, host.kind == HostKind.OP, users)


def _fallback(timeline: Timeline, source: I64, top_op: I32, step: str | None) -> I64:
    """Returns a name for each host event, as an index into `timeline.strings`, or -1.

    This is the name of the innermost annotation that is around the event and does not mark a step. If there is no such
    annotation, this is the name of the outermost operator around the event.
    """
    host = timeline.host
    annotation = host.kind == HostKind.ANNOTATION
    names = unique(host.name[annotation])
    mark = step or "ProfilerStep"
    # A name that was found may hold a bracket, as "step[DECODE bs=*]" does; one that was given may be a glob.
    marks = (f"{mark}*", mark.replace("[", "[[]") + "*", f"{RECORDED_STEP}*")
    steps = [i for i in names if any(fnmatch.fnmatchcase(timeline.strings[i], mark) for mark in marks)]
    annotation &= ~is_in(host.name, np.array(steps, dtype=np.int32))
    around = nearest(host.parent, annotation)[source]
    chosen = np.where(around >= 0, around, top_op[source])
    return np.where(chosen >= 0, host.name[np.maximum(chosen, 0)], -1).astype(np.int64)
