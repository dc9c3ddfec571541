"""Tensors are made on the device and no longer copied to it: one small kernel replaces each copy."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.locate.kinds import OF_THE_DRIVER
from unstall.replay.program import Code
from unstall.timeline.columns import CopyDirection
from unstall.what_if.place import EditPlace
from unstall.what_if.staging import OPERATORS, limited, staging_ns, unexplained_ns, usual_launch
from unstall.what_if.subject import Subject

_KERNEL_NS = 1_500  # to fill a few kB


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which a kernel makes the tensor on the device, in place of each upload.
    The host does not wait for it.

    The operator that launches this kernel takes as much host time as this run's operators that
    launch one kernel. What it costs to make the tensor on the host stays, and so does other work
    within the operation of the upload, such as an allocation or the first use of the device.
    `place` is the line of the uploads; None for all.
    """
    timeline, program, operation = subject.timeline, subject.program, subject.places.operation
    up = (timeline.device.direction == CopyDirection.HOST_TO_DEVICE)[program.ops.device]
    up &= subject.at(place)[program.launcher]
    copying = np.unique(program.launcher[up])
    host = timeline.host
    gone = np.zeros(len(host), dtype=np.bool_)
    rows = program.instructions.host[copying]
    gone[rows] = True
    gone[operation[rows][operation[rows] >= 0]] = True
    keep = np.zeros(len(program.instructions), dtype=np.bool_)
    keep[copying] = True
    cut = subject.cut(gone, keep=keep, spare=np.isin(host.kind, OF_THE_DRIVER))
    operator, call = usual_launch(subject)
    do, ops = cut.instructions, cut.ops
    most = staging_ns(subject, up) + OPERATORS * operator
    removed = limited(subject, subject.program.instructions.work - do.work, copying, most)
    work, calls = subject.program.instructions.work - removed, do.call.copy()
    # A modelled launch never costs more than the one it replaces.
    work[copying] += max(operator - call, 0)
    rest = unexplained_ns(subject, up, call)
    calls[copying] = call + rest[copying]
    waits = np.flatnonzero(do.goes_on & np.append(False, keep[:-1]))
    code = do.code.copy()
    code[waits], calls[waits] = Code.CALL, rest[waits]
    edited = subject.with_program(
        replace(
            cut,
            instructions=replace(do, code=code, work=work, call=calls),
            ops=replace(
                ops,
                duration=np.where(up, np.minimum(ops.duration, _KERNEL_NS), ops.duration),
                engine=np.where(up, -1, ops.engine).astype(np.int32),
            ),
        )
    )
    return replace(edited, made=np.append(subject.made, program.ops.device[up]))
