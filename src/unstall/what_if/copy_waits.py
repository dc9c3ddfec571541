"""Finds the waits of the host that belong to copies. The call that launches a copy may wait for it,
and so may another call within the same operation.

An operation is the innermost operator around a call. If no operators were recorded, it is a copy
with the wait that follows it at once.
"""

from __future__ import annotations

import numpy as np

from unstall.locate.operations import operations
from unstall.replay.program import Program
from unstall.timeline.columns import I64, Bool
from unstall.what_if.subject import SYNCS, Subject


def launching(program: Program, ops: Bool) -> Bool:
    """Returns a mask of the instructions that launch at least one of the ops in `ops`, which is a
    mask of the program's ops.
    """
    chosen = np.zeros(len(program.instructions), dtype=np.bool_)
    chosen[program.launcher[ops]] = True
    return chosen


def waits_in_call(program: Program, launches: Bool) -> Bool:
    """Returns a mask of the instructions that are the wait of a launching call, such as the wait of
    a blocking copy.

    `launches` is a mask of the instructions that launch.
    """
    do = program.instructions
    chosen: Bool = np.append(False, launches[:-1]) & do.goes_on & np.isin(do.code, SYNCS)
    return chosen


def with_wait_in_call(program: Program, launches: Bool) -> Bool:
    """Returns a mask of those instructions in `launches` whose call also waits, as that of a blocking copy does."""
    chosen: Bool = np.append(waits_in_call(program, launches)[1:], False)
    return chosen


def waits_in_operation(subject: Subject, launches: Bool) -> Bool:
    """Returns a mask of the instructions that wait within the same operation as an instruction in
    `launches`.

    An operation is the innermost operator around a call. If no operators were recorded, it is a
    copy with the wait that follows it at once.
    """
    own = operation_of(subject)
    waits = np.isin(subject.program.instructions.code, SYNCS)
    chosen: Bool = waits & (own >= 0) & np.isin(own, own[launches & (own >= 0)])
    return chosen


def with_wait_in_operation(subject: Subject, launches: Bool) -> Bool:
    """Returns a mask of those instructions in `launches` whose operation (the innermost operator
    around them) also waits.
    """
    own, waits = operation_of(subject), waits_in_operation(subject, launches)
    chosen: Bool = launches & (own >= 0) & np.isin(own, own[waits])
    return chosen


def operation_of(subject: Subject) -> I64:
    """Returns, for each instruction, the number of the operation that contains it, or -1 if none
    does.

    An operation is the innermost operator around a call. If no operators were recorded, it is a
    copy with the wait that follows it at once.
    """
    timeline, do = subject.timeline, subject.program.instructions
    operation = operations(timeline, timeline.host.op)
    own = np.full(len(do), -1, dtype=np.int64)
    own[do.host >= 0] = operation[do.host[do.host >= 0]]
    return own
