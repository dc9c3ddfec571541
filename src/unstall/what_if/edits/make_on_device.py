"""Tensors that are copied to the device here are made there instead: one small kernel replaces each copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unstall.locate.kinds import OF_THE_DRIVER
from unstall.replay.program import Code
from unstall.timeline.columns import I64, CopyDirection, HostKind
from unstall.timeline.grouping import groups
from unstall.what_if.edits.pin_copies import staging_ns
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import Subject

_KERNEL_NS = 1_500  # to fill a few kB
_OPERATORS = 4  # of an upload in torch: aten::to, aten::_to_copy, aten::empty_strided, aten::copy_


def prepare(text: str | None) -> EditPlace | None:
    return parse_line(text) if text is not None else None


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Removes the operations of the copies and their waits.

    The operator that makes the tensor on the device takes as long on the host as operators in this run that launch one
    kernel. Making the tensor on the host keeps its cost. So does what else happens within the operation, such as
    allocation or the first use of the device.
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
    staging = staging_ns(subject, up)
    removed = _limited(subject, subject.program.instructions.work - do.work, copying, staging + _OPERATORS * operator)
    work, calls = subject.program.instructions.work - removed, do.call.copy()
    # A modelled launch never costs more than the one it replaces.
    work[copying] += max(operator - call, 0)
    before = np.clip(do.call - call, 0, staging)[copying]
    calls[copying] = np.maximum(do.call[copying] - before, call)
    waits = np.flatnonzero(do.goes_on & np.append(False, keep[:-1]))
    code = do.code.copy()
    code[waits] = Code.CALL
    behind = staging.copy()
    behind[copying] -= before
    calls[waits] = np.maximum(np.maximum(subject.program.instructions.latency, 0)[waits] - behind[waits - 1], 0)
    return subject.with_program(
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


def _limited(subject: Subject, removed: I64, copying: I64, most: I64) -> I64:
    """Limits the work that goes with each copy.

    Args:
        subject: Before the edit.
        removed: Work to remove before each instruction, ns.
        copying: The instructions that copy, ascending.
        most: The most that goes with each instruction's copy, ns.

    Returns:
        The work to remove before each instruction, ns. Work behind a copy that is not followed by another one goes
        with that copy.
    """
    owner = np.full(len(removed), -1, dtype=np.int64)
    for _, mine in groups(subject.program.instructions.thread):
        at = np.searchsorted(copying_here := np.intersect1d(mine, copying), mine, side="right") - 1
        if len(copying_here):
            owner[mine] = copying_here[np.maximum(at, 0)]
    known = owner >= 0
    total = np.bincount(owner[known], removed[known], len(removed))
    share = np.ones(len(removed))
    share[known] = np.minimum(1, most[owner[known]] / np.maximum(total[owner[known]], 1))
    return (removed * share).astype(np.int64)


def usual_launch(subject: Subject) -> tuple[int, int]:
    """Returns the usual host time, ns, of (an operator that launches one kernel, the launching call in it)."""
    host, do = subject.timeline.host, subject.program.instructions
    launching = np.flatnonzero((do.code == Code.LAUNCH) & (do.host >= 0))
    launching = launching[host.kind[do.host[launching]] == HostKind.LAUNCH]
    if not len(launching):
        return 0, 0
    call = int(np.median(do.call[launching]))
    top = subject.places.operation[do.host[launching]]
    single, times = np.unique(top[top >= 0], return_counts=True)
    single = single[times == 1]
    recorded = int(np.median(host.end[single] - host.start[single])) if len(single) else 0
    # The host's work without the recorder's overhead.
    work = int(np.median(do.work[launching]))
    return (min(recorded, work + call) if recorded else work + call), call
