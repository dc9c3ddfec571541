"""Copies are K times as fast, and so is their staging by the host."""

from __future__ import annotations

import numpy as np

from unstall.replay.program import Code
from unstall.timeline.columns import DeviceKind
from unstall.what_if.copy_waits import launching, with_wait_in_call
from unstall.what_if.edits.host_speed import parse_factor
from unstall.what_if.edits.kernel_speed import ops_faster
from unstall.what_if.subject import Subject

_CALL_NS = 5_000  # of a copy that is only queued


def prepare(text: str | None) -> float:
    return parse_factor("copy-speed", text)


def apply(subject: Subject, factor: float) -> Subject:
    """Returns the run with copies `factor` times as fast, and their staging by the host, too. If a
    copy blocks the host, the host still waits for the work that is queued before the copy.
    """
    program = subject.program
    do, ops = program.instructions, program.ops
    copies = (subject.timeline.device.kind == DeviceKind.COPY)[ops.device] & ~subject.communication
    launches = launching(program, copies)
    staged = with_wait_in_call(program, launches)
    # What is left of a blocking call without first use and what queueing takes is staging.
    own = 1 - subject.share_of_call(subject.startup)
    share = np.where(staged, np.maximum(own - _CALL_NS / np.maximum(do.call, 1), 0), 0.0)
    # So is what is left of a call after its copy has begun.
    share[np.append(False, launches[:-1]) & do.goes_on & (do.code == Code.CALL)] = 1.0
    edited = subject.faster(factor, np.zeros(len(do)), share)
    return subject.with_program(ops_faster(edited.program, copies, factor))
