"""Estimates how much of a copying call's time is staging. Staging is the host's copying of the bytes into pinned
memory. The rest of the call's time has other causes.

The first use of the device, or of a kernel, may happen within any call and take 100 ms. The program needs this first
use with or without the copy.
"""

from __future__ import annotations

import numpy as np

from unstall.replay.program import Code
from unstall.timeline.columns import I64, Bool, HostKind
from unstall.timeline.grouping import groups
from unstall.what_if.subject import Subject

# Copies of up to 16 kB return within 6 to 20 µs (examples/traces/waits). A page that the host touches for the first
# time takes 0.5 to 2 µs for its 4 kB.
STAGING_NS = 20_000
_STAGED_BYTES_A_NS = 2.0
OPERATORS = 4
"""The number of operators of one copy in torch: aten::to, aten::_to_copy, aten::empty_strided, aten::copy_."""


def staging_ns(subject: Subject, copies: Bool) -> I64:
    """Returns, for each instruction, the longest host time that the staging of its copies can take, in ns.

    Staging is copying into pinned memory. `copies` is a mask of the ops that count as copies.
    """
    program = subject.program
    count, launcher = len(program.instructions), program.launcher[copies]
    size = np.maximum(subject.timeline.device.bytes[program.ops.device[copies]], 0)
    staging = np.bincount(launcher, size / _STAGED_BYTES_A_NS, count)
    return np.where(np.bincount(launcher, minlength=count) > 0, STAGING_NS + staging, 0).astype(np.int64)


def unexplained_ns(subject: Subject, copies: Bool, usual_ns: int = 0) -> I64:
    """Returns, for each instruction, the host time of its copying call that is not caused by the copy, in ns.

    This is the time of the call, minus the time of staging, minus the usual time of a call (`usual_ns`). The part of
    this time before the copy is returned for the instruction that launches the copy. The part after the copy is
    returned for the wait in the same call. `copies` is a mask of the ops that count as copies.
    """
    do, staging = subject.program.instructions, staging_ns(subject, copies)
    launching = staging > 0
    before = np.where(launching, np.maximum(do.call - usual_ns - staging, 0), 0)
    left = np.where(launching, staging - np.clip(do.call - usual_ns, 0, staging), 0)
    behind = do.goes_on & np.append(False, launching[:-1])
    after: I64 = np.where(behind, np.maximum(do.latency - np.append(0, left[:-1]), 0), 0)
    return before + after


def limited(subject: Subject, removed: I64, copying: I64, most: I64) -> I64:
    """Limits how much of the host's work is removed with each copy.

    Args:
        subject: The run before the edit.
        removed: The work to remove before each instruction, in ns.
        copying: The instructions that copy, ascending.
        most: For each copying instruction, the most work to remove with its copy, in ns.

    Returns:
        The work to remove before each instruction, in ns. Work directly before a copying instruction counts for the
        copy of this instruction. Other work counts for the previous copy on the same thread. If there is no previous
        copy, the work counts for the first copy of the thread.
    """
    owner = np.full(len(removed), -1, dtype=np.int64)
    copies = np.zeros(len(removed), dtype=np.bool_)
    copies[copying] = True
    for _, mine in groups(subject.program.instructions.thread):
        here = mine[copies[mine]]
        if len(here):
            owner[mine] = here[np.maximum(np.searchsorted(here, mine, side="right") - 1, 0)]
    known = owner >= 0
    total = np.bincount(owner[known], removed[known], len(removed))
    share = np.ones(len(removed))
    share[known] = np.minimum(1, most[owner[known]] / np.maximum(total[owner[known]], 1))
    limit: I64 = (removed * share).astype(np.int64)
    return limit


def usual_launch(subject: Subject) -> tuple[int, int]:
    """Returns two median host times in ns: the time of an operator that launches one kernel, and the time of a launch
    call.

    Returns (0, 0) if the run has no launches.
    """
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
