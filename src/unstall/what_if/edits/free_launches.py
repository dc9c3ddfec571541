"""Launches no longer wait for their ops: CUDA_LAUNCH_BLOCKING is unset. Copies from and to pageable memory still do."""

from __future__ import annotations

import numpy as np

from unstall.replay.program import Code
from unstall.timeline.columns import DeviceKind, HostMemory
from unstall.timeline.copies import is_synchronous
from unstall.what_if.copy_waits import launching, waits_in_call
from unstall.what_if.place import EditPlace
from unstall.what_if.rewrites import neutral
from unstall.what_if.subject import Subject


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    program, timeline = subject.program, subject.timeline
    if not timeline.meta.launches_block:
        return subject.with_program(program, "launches do not block: CUDA_LAUNCH_BLOCKING is not set")
    device, ops = timeline.device, program.ops
    call = np.maximum(device.launch[ops.device], 0)
    blocks_anyway = (device.kind[ops.device] == DeviceKind.COPY) & (
        (device.host_memory[ops.device] == HostMemory.PAGEABLE) | is_synchronous(timeline, call)
    )
    launches = (program.instructions.code == Code.LAUNCH) & subject.at(place) & ~launching(program, blocks_anyway)
    return subject.with_program(neutral(program, waits_in_call(program, launches)))
