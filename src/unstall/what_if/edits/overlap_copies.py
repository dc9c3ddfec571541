"""Copies to the device run on a second stream: each runs while the device computes with the copy before it."""

from __future__ import annotations

import numpy as np

from unstall.figures import size
from unstall.replay.order import LAG_NS
from unstall.replay.program import Code, Program
from unstall.timeline.columns import I64, Bool, CopyDirection, DeviceKind, Uploads
from unstall.timeline.grouping import groups
from unstall.what_if.copy_waits import launching, with_wait_in_call, with_wait_in_operation
from unstall.what_if.place import EditPlace
from unstall.what_if.rewrites import on_streams
from unstall.what_if.subject import Subject

ASSUMED = (
    "the file does not say which kernels use which copy: the next kernel on the copy's stream is assumed to use it"
)
"""A note for copies of which the trace does not say who uses their data."""


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which uploads run beside the computation that is now on the same stream.

    Each upload has two buffers in turn: the third uses the buffer of the first. So an upload waits
    only until its buffer is free. The first op that uses its data waits for it, as for an event. If
    the trace does not say which op that is, it is the next op on the computing stream. Downloads
    stay as they are, because the host waits for them. `place` is the line of the uploads; None for
    all.
    """
    program, device = subject.program, subject.timeline.device
    ops = program.ops
    computing = np.unique(ops.stream[(device.kind == DeviceKind.KERNEL)[ops.device]])
    chosen = (device.direction == CopyDirection.HOST_TO_DEVICE)[ops.device] & np.isin(ops.stream, computing)
    chosen &= subject.at(place)[program.launcher] & (ops.duration > 0)
    launches = launching(program, chosen)
    waits = with_wait_in_call(program, launches) | with_wait_in_operation(subject, launches)
    waited = chosen & waits[program.launcher]
    data = _Data(subject)
    tied = chosen & ~waited & np.where(data.known, data.tied(), _tied(program))
    notes = []
    if waited.any():
        notes.append(
            f"{int(waited.sum())} of {int(chosen.sum())} copies stay as they are, as the host waits for them: first "
            "pin their memory, or copy without blocking"
        )
    if tied.any():
        notes.append(
            f"{int(tied.sum())} of {int(chosen.sum())} copies stay as they are, as events tie them to their stream"
        )
    chosen &= ~waited & ~tied
    if (chosen & ~data.known).any():
        notes.append(ASSUMED)
    extra = data.second_buffers(np.flatnonzero(chosen & data.known))
    if extra:
        notes.append(f"second buffers take {size(extra)} more device memory")
    step = np.searchsorted(program.step_starts, program.launcher, side="right")
    stream, after, lag = ops.stream.astype(np.int64), ops.after.astype(np.int64), ops.lag.copy()
    device_of_stream = program.device_of_stream.tolist()
    for number, mine in groups(ops.stream):
        at = np.flatnonzero(chosen[mine])
        if len(at):
            _let_ahead(mine, at[~data.known[mine[at]]], step[mine], after, lag)
            data.let_ahead(mine[at[data.known[mine[at]]]], after, lag)
            stream[mine[at]] = len(device_of_stream)
            device_of_stream.append(device_of_stream[number])
    return subject.with_program(on_streams(program, stream, after, lag, device_of_stream), *notes)


class _Data:
    """Which ops use the data of which upload, as far as the trace says so. An op is given by its
    number in the program.
    """

    def __init__(self, subject: Subject) -> None:
        self._program = program = subject.program
        self._uploads: Uploads = subject.timeline.uploads
        rows = len(subject.timeline.host)
        call = program.instructions.host[program.launcher]
        row_of = np.full(rows + 1, -1, dtype=np.int64)
        row_of[self._uploads.call] = np.arange(len(self._uploads))
        self._row: I64 = row_of[call]  # by op: its row in `Uploads`, or -1
        self.known: Bool = self._row >= 0
        ops = np.flatnonzero(call >= 0)
        self._first, self._last = (np.full(rows + 1, -1, dtype=np.int64) for _ in range(2))  # by host row
        self._first[call[ops][::-1]] = ops[::-1]
        self._last[call[ops]] = ops
        device = subject.timeline.device
        self._bytes: I64 = np.maximum(device.bytes[program.ops.device], 0)
        self._place: I64 = subject.places.place[np.maximum(call, 0)].astype(np.int64)

    def tied(self) -> Bool:
        """Returns a mask of the program's ops: uploads that cannot leave their stream.

        They are uploads whose data other streams use, and uploads that an event or a wait of the
        host right after them covers.
        """
        _, covered = _marked(self._program)
        user = self._first[self._uploads.first_use]
        uses = np.where(user >= 0, self._program.ops.after[user] >= 0, False)
        held: Bool = (~self._uploads.alone | uses)[self._row] if len(self._uploads) else np.zeros_like(covered)
        return covered | held

    def second_buffers(self, ops: I64) -> int:
        """Returns how many bytes the second buffers of the uploads `ops` take together. `ops` are numbers of ops."""
        return int(np.unique(np.stack((self._place[ops], self._bytes[ops])), axis=1)[1].sum())

    def let_ahead(self, ops: I64, after: I64, lag: I64) -> None:
        """Lets the uploads `ops` wait only until their buffer is free, and lets the first op that
        uses their data wait for them. Writes that to `after` and `lag`.

        An upload that overwrites the data of an earlier upload takes the other buffer of the two.
        Uploads at one line and of one size that go to new memory each time share two buffers.

        Args:
            ops: The numbers of the uploads, ascending.
            after: For each op, an earlier op that it waits for, or -1.
            lag: For each op, the time in ns from the end of the op in `after` to its own start.
        """
        uploads, row = self._uploads, self._row[ops]
        previous = uploads.previous[row]
        free = self._last[np.where(previous >= 0, uploads.used_before[previous], uploads.used_before[row])]
        new = np.flatnonzero(previous < 0)
        _, kind = np.unique(np.stack((self._place[ops[new]], self._bytes[ops[new]])), axis=1, return_inverse=True)
        for _, alike in groups(kind.reshape(-1)):
            turns = new[alike]
            held = self._last[uploads.last_use[row[turns[:-2]]]]
            free[turns[2:]] = np.maximum(free[turns[2:]], np.where(held < ops[turns[2:]], held, -1))
        after[ops] = np.where(free < ops, free, -1)
        user = self._first[uploads.first_use[row]]
        np.maximum.at(after, user[user >= 0], ops[user >= 0])
        lag[ops] = lag[user[user >= 0]] = LAG_NS


def _marked(program: Program) -> tuple[Bool, Bool]:
    """Returns `(before, after)`: masks of the ops right before which, or right after which, an
    event is recorded or waited for on their stream, or the host waits for their stream.
    """
    do, ops = program.instructions, program.ops
    before, after = np.zeros(len(ops), dtype=np.bool_), np.zeros(len(ops), dtype=np.bool_)
    marks = np.isin(do.code, (Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM))
    launcher = program.launcher
    for number, mine in groups(ops.stream):
        rows = np.flatnonzero(marks & (do.stream == number))
        seen = np.searchsorted(rows, launcher[mine])
        before[mine[1:]] |= np.diff(seen) > 0
        after[mine[:-1]] |= np.diff(seen) > 0
        after[mine[-1:]] |= seen[-1:] < len(rows)
    return before, after


def _tied(program: Program) -> Bool:
    """Returns a mask of the ops that cannot run ahead of the computation, because events order them
    on their stream.

    An event or a wait stands right before or after such an op on its stream, or the next op on its
    stream waits for an op of another one.
    """
    before, after = _marked(program)
    tied = before | after
    for _, mine in groups(program.ops.stream):
        tied[mine[:-1]] |= program.ops.after[mine[1:]] >= 0
    return tied


def _let_ahead(mine: I64, at: I64, step: I64, after: I64, lag: I64) -> None:
    """Lets the uploads `mine[at]` run ahead of the other ops on their stream, with two buffers.
    Writes that to `after` and `lag`. The op after an upload is taken to use its data.

    If a step has several uploads, as when weights are uploaded layer by layer, its first one waits
    for the step before.

    Args:
        mine: The ops of one stream, in order.
        at: The positions of the uploads in `mine`.
        step: For each op in `mine`, the number of its step.
        after: For each op of the program, an earlier op that it waits for, or -1.
        lag: For each op of the program, the time in ns from the end of the op in `after` to its own
            start.
    """
    if not len(at):
        return
    following = at + 1
    uses = following[(following < len(mine)) & ~np.isin(following, at)]
    after[mine[uses]] = mine[uses - 1]
    lag[mine[uses]] = LAG_NS
    # The buffer of the copy before last is free when the computation before the last copy is done.
    after[mine[at]] = -1
    opens = np.append(True, step[at][1:] != step[at][:-1])
    several = np.bincount(step[at])[step[at]] > 1
    free = np.where(opens & several, at, np.append(-1, at[:-1])) - 1
    known = (free >= 0) & ~np.isin(free, at)
    after[mine[at[known]]] = mine[free[known]]
    lag[mine[at[known]]] = LAG_NS
