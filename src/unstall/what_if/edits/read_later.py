"""Copies to the host go into pinned memory and are read later: the host does not wait for them here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.locate.operations import operations
from unstall.replay.program import Code
from unstall.timeline.columns import Bool, CopyDirection
from unstall.what_if.edits.pin_copies import pinned
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.staging import unexplained_ns
from unstall.what_if.subject import SYNCS, Subject


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Removes the waits for these copies. The copies stay on their stream. Waits for anything else stay, too."""
    timeline, ops = subject.timeline, subject.program.ops
    down = (timeline.device.direction == CopyDirection.DEVICE_TO_HOST)[ops.device]
    chosen = down & subject.at(place)[subject.program.launcher]
    made = pinned(subject, chosen)
    do = made.program.instructions
    waits = _waits_for(made, chosen)
    code = np.where(waits, Code.CALL, do.code).astype(np.int8)
    # What the copy does not explain of its call stays in it.
    rest = np.where(waits & do.goes_on, unexplained_ns(subject, chosen), 0)
    return made.with_program(replace(made.program, instructions=replace(do, code=code, call=do.call + rest)))


def _waits_for(subject: Subject, copies: Bool) -> Bool:
    """Returns which instructions wait for these ops: in the call that launches them, or in the same operation."""
    timeline, program = subject.timeline, subject.program
    do = program.instructions
    launching = np.zeros(len(do), dtype=np.bool_)
    launching[program.launcher[copies]] = True
    in_call = np.append(False, launching[:-1]) & do.goes_on
    operation = operations(timeline, timeline.host.op)
    own = np.full(len(do), -1, dtype=np.int64)
    own[do.host >= 0] = operation[do.host[do.host >= 0]]
    around = own[launching & (own >= 0)]
    chosen: Bool = np.isin(do.code, SYNCS) & (in_call | ((own >= 0) & np.isin(own, around)))
    return chosen
