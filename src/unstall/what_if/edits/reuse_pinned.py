"""Data for the device is first copied into pinned memory that is kept, and the host does not wait."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.timeline.columns import CopyDirection, HostMemory
from unstall.what_if.edits.pin_copies import pinned
from unstall.what_if.place import EditPlace
from unstall.what_if.subject import Subject

_BYTES_A_NS = 50.0  # 16.8 MB in 0.34 ms on the host of an H200: aten::copy_ of examples/traces/pin_each_step
_OPERATOR_NS = 4_000


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which uploads at `place` (None for all) come from pinned memory, into
    which the host copies the data first. The host time of that copy is added.
    """
    device, program = subject.timeline.device, subject.program
    row = program.ops.device
    chosen = (device.direction[row] == CopyDirection.HOST_TO_DEVICE) & subject.at(place)[program.launcher]
    chosen &= device.host_memory[row] == HostMemory.PAGEABLE
    made = pinned(subject, chosen)
    do = made.program.instructions
    work = do.work.astype(np.float64)
    cost = _OPERATOR_NS + np.maximum(device.bytes[row[chosen]], 0) / _BYTES_A_NS
    np.add.at(work, program.launcher[chosen], cost)
    return made.with_program(replace(made.program, instructions=replace(do, work=work.astype(np.int64))))
