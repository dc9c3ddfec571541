"""Copies to the host go into pinned memory and are read later, so that the host does not wait for them."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code
from unstall.timeline.columns import CopyDirection
from unstall.what_if.copy_waits import launching, waits_in_call, waits_in_operation
from unstall.what_if.edits.pin_copies import pinned
from unstall.what_if.place import EditPlace
from unstall.what_if.staging import unexplained_ns
from unstall.what_if.subject import Subject


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which the host does not wait for downloads at `place` (None for all). The
    downloads stay on their stream. All other waits stay.
    """
    timeline, ops = subject.timeline, subject.program.ops
    down = (timeline.device.direction == CopyDirection.DEVICE_TO_HOST)[ops.device]
    chosen = down & subject.at(place)[subject.program.launcher]
    made = pinned(subject, chosen)
    do = made.program.instructions
    launches = launching(made.program, chosen)
    waits = waits_in_call(made.program, launches) | waits_in_operation(made, launches)
    code = np.where(waits, Code.CALL, do.code).astype(np.int8)
    # What the copy does not explain of its call stays in it.
    rest = np.where(waits & do.goes_on, unexplained_ns(subject, chosen), 0)
    return made.with_program(replace(made.program, instructions=replace(do, code=code, call=do.call + rest)))
