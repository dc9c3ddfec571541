"""Copies to the device run on a second stream: each runs while the device computes with the copy before it."""

from __future__ import annotations

import numpy as np

from unstall.replay.order import LAG_NS
from unstall.replay.program import Code, Program
from unstall.timeline.columns import I64, Bool, CopyDirection, DeviceKind
from unstall.timeline.grouping import groups
from unstall.what_if.copy_waits import launching, with_wait_in_call, with_wait_in_operation
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.rewrites import on_streams
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Lets uploads run ahead of the computation that is on the same stream as the uploads. The uploads have two
    buffers.

    The uploads use the two buffers in turn: upload 3 uses the buffer of upload 1. An upload waits only until its buffer
    is free. The next op on the computing stream waits for the upload, as it would wait for an event. Downloads stay
    unchanged, because the host waits for downloads.
    """
    program, device = subject.program, subject.timeline.device
    ops = program.ops
    computing = np.unique(ops.stream[(device.kind == DeviceKind.KERNEL)[ops.device]])
    chosen = (device.direction == CopyDirection.HOST_TO_DEVICE)[ops.device] & np.isin(ops.stream, computing)
    chosen &= subject.at(place)[program.launcher] & (ops.duration > 0)
    launches = launching(program, chosen)
    waits = with_wait_in_call(program, launches) | with_wait_in_operation(subject, launches)
    waited = chosen & waits[program.launcher]
    tied = chosen & ~waited & _tied(program)
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
    step = np.searchsorted(program.step_starts, program.launcher, side="right")
    stream, after, lag = ops.stream.astype(np.int64), ops.after.astype(np.int64), ops.lag.copy()
    device_of_stream = program.device_of_stream.tolist()
    for number, mine in groups(ops.stream):
        at = np.flatnonzero(chosen[mine])
        if len(at):
            _let_ahead(mine, at, step[mine], after, lag)
            stream[mine[at]] = len(device_of_stream)
            device_of_stream.append(device_of_stream[number])
    return subject.with_program(on_streams(program, stream, after, lag, device_of_stream), *notes)


def _tied(program: Program) -> Bool:
    """Returns a mask of the ops that cannot run ahead of the computation, because an event orders them on their stream.

    On the stream of such an op, an event or a wait comes directly before or after the op. An op is also in the mask if
    the next op on its stream waits for an op that is given in `after`.
    """
    do, ops = program.instructions, program.ops
    tied = np.zeros(len(ops), dtype=np.bool_)
    marks = np.isin(do.code, (Code.RECORD, Code.STREAM_WAIT, Code.SYNC_STREAM))
    launcher = program.launcher
    for number, mine in groups(ops.stream):
        rows = np.flatnonzero(marks & (do.stream == number))
        seen = np.searchsorted(rows, launcher[mine])
        tied[mine[1:]] |= np.diff(seen) > 0
        tied[mine[:-1]] |= (np.diff(seen) > 0) | (ops.after[mine[1:]] >= 0)
        tied[mine[-1:]] |= seen[-1:] < len(rows)
    return tied


def _let_ahead(mine: I64, at: I64, step: I64, after: I64, lag: I64) -> None:
    """Lets the uploads `mine[at]` run ahead of the other ops on their stream, with two buffers. Changes `after` and
    `lag`.

    A step may have several uploads, for example if weights are uploaded layer by layer. Then the first upload of the
    step waits for the previous step.

    Args:
        mine: The ops of one stream, in order.
        at: The positions of uploads in `mine`.
        step: The number of the step of each op in `mine`.
        after: For each op of the program, an earlier op that it waits for, or -1.
        lag: For each op of the program, the time in ns from the end of the op in `after` to the start of this op.
    """
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
