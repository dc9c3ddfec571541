"""Collectives run beside computation: nothing on the device waits for their results."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.errors import UsageError
from unstall.replay.program import Code
from unstall.timeline.grouping import groups
from unstall.what_if.copy_waits import launching
from unstall.what_if.rewrites import on_streams
from unstall.what_if.subject import Subject


def prepare(text: str | None) -> None:
    if text is not None:
        raise UsageError("write overlap-comm: it is about all collectives")


def apply(subject: Subject, _: None) -> Subject:
    """Returns the run in which collectives begin when their input is ready, in the same order as
    before. Only the end of a step waits for them.

    This is the most that overlap can gain. In a real program, each use of a collective's result has
    to wait for it.
    """
    program = subject.program
    do, ops = program.instructions, program.ops
    collective = subject.communication
    computing = np.unique(ops.stream[~collective])
    launcher = program.launcher
    in_graph = collective & launching(program, ~collective)[launcher]
    moved = collective & np.isin(ops.stream, computing) & ~in_graph
    stream, after = ops.stream.copy(), ops.after.copy()
    device_of_stream = program.device_of_stream.tolist()
    for number, mine in groups(ops.stream):
        at = np.flatnonzero(moved[mine])
        if len(at):
            before = at - 1
            after[mine[at[before >= 0]]] = mine[before[before >= 0]]
            stream[mine[at]] = len(device_of_stream)
            device_of_stream.append(device_of_stream[number])
    # Of streams that only communicate, other streams no longer wait for the events.
    communicating = np.setdiff1d(np.unique(ops.stream[collective]), computing)
    waits = (do.code == Code.STREAM_WAIT) & (do.target >= 0)
    waits[waits] = np.isin(do.stream[do.target[waits]], communicating) & ~np.isin(do.stream[waits], communicating)
    edited = on_streams(program, stream, after, ops.lag, device_of_stream)
    do = edited.instructions
    edited = replace(edited, instructions=replace(do, code=np.where(waits, Code.CALL, do.code).astype(np.int8)))
    notes = []
    if collective.any():
        notes.append(
            "what uses the result of a collective still has to wait for it: this is the most that overlap can gain"
        )
    if in_graph.any():
        notes.append(f"{int(in_graph.sum())} collectives stay where they are, within CUDA graphs")
    return subject.with_program(edited, *notes)
