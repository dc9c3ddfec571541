"""Copies run on a stream of their own, one ahead of the computation that uses them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.locate.operations import operations
from unstall.replay.order import LAG_NS
from unstall.replay.program import Code, Program
from unstall.timeline.columns import I32, I64, Bool, CopyDirection, DeviceKind
from unstall.timeline.grouping import groups
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import SYNCS, Subject


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Uploads no longer wait for the computation on their stream, but only for the buffer of the copy two before them.

    The next op on the computing stream waits for the upload, as it would for the copy's event. Downloads stay
    unchanged, because something on the host waits for them.
    """
    program, device = subject.program, subject.timeline.device
    ops = program.ops
    computing = np.unique(ops.stream[(device.kind == DeviceKind.KERNEL)[ops.device]])
    chosen = (device.direction == CopyDirection.HOST_TO_DEVICE)[ops.device] & np.isin(ops.stream, computing)
    chosen &= subject.at(place)[program.launcher] & (ops.duration > 0)
    waited = chosen & _waited_for(subject)[program.launcher]
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
    """Returns which ops are between events and waits of their stream, or before an op that also follows another op."""
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
    """Lets uploads `mine[at]` run ahead of the other ops `mine` of their stream, with two buffers.

    If a step has several uploads, as when weights are fetched layer by layer, the first one waits for the previous
    step.
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


def _waited_for(subject: Subject) -> Bool:
    """Returns which instructions launch copies that the host waits for, in the call or in the same operation."""
    timeline, do = subject.timeline, subject.program.instructions
    operation = operations(timeline, timeline.host.op)
    waits = np.isin(do.code, SYNCS) & (do.host >= 0)
    in_call = np.append(waits[1:] & do.goes_on[1:], False)
    own = np.full(len(do), -1, dtype=np.int64)
    own[do.host >= 0] = operation[do.host[do.host >= 0]]
    chosen: Bool = in_call | ((own >= 0) & np.isin(own, own[waits & (own >= 0)]))
    return chosen


def on_streams(program: Program, stream: I32 | I64, after: I32 | I64, lag: I64, device_of_stream: list[int]) -> Program:
    """Returns the program with its ops on the streams `stream`, which may be new, each after the op in `after`."""
    # A graph follows the stream of the call that launches it; a single op follows its own stream.
    do = program.instructions
    launched = do.stream.copy()
    moved = program.launcher[stream != program.ops.stream]
    launched[moved] = stream[stream != program.ops.stream]
    return replace(
        program,
        instructions=replace(do, stream=launched),
        ops=replace(program.ops, stream=stream.astype(np.int32), after=after.astype(np.int32), lag=lag),
        device_of_stream=np.array(device_of_stream, dtype=np.int32),
    )
