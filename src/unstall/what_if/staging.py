"""Estimates how much time of a copying call is staging: the host copies the bytes into pinned
memory first.

The rest of the call has other causes. It may be the first use of the device or of a kernel, which
can happen within any call and take 100 ms. The program needs that with the copy or without it.
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
"""The longest host time in ns that staging takes for a copy of a few bytes."""
_STAGED_BYTES_A_NS = 2.0
OPERATORS = 4
"""How many operators of torch one copy runs: aten::to, aten::_to_copy, aten::empty_strided, aten::copy_."""


def staging_ns(subject: Subject, copies: Bool) -> I64:
    """Returns, for each instruction, the longest host time in ns that the staging of its copies can
    take. Staging copies bytes into pinned memory.

    `copies` is a mask of the program's ops: those that count as copies.
    """
    program = subject.program
    count, launcher = len(program.instructions), program.launcher[copies]
    size = np.maximum(subject.timeline.device.bytes[program.ops.device[copies]], 0)
    staging = np.bincount(launcher, size / _STAGED_BYTES_A_NS, count)
    return np.where(np.bincount(launcher, minlength=count) > 0, STAGING_NS + staging, 0).astype(np.int64)


def unexplained_ns(subject: Subject, copies: Bool, usual_ns: int = 0) -> I64:
    """Returns, for each instruction, the host time in ns of its copying call that the copy does not
    explain.

    It is the time of the call less the longest time of staging (copying into pinned memory), and
    less `usual_ns`. The part of it before the copy is returned for the instruction that launches
    the copy, the part after the copy for the wait in the same call.

    Args:
        subject: The run.
        copies: A mask of the program's ops: those that count as copies.
        usual_ns: How long a call takes in any case.
    """
    do, staging = subject.program.instructions, staging_ns(subject, copies)
    launching = staging > 0
    before = np.where(launching, np.maximum(do.call - usual_ns - staging, 0), 0)
    left = np.where(launching, staging - np.clip(do.call - usual_ns, 0, staging), 0)
    behind = do.goes_on & np.append(False, launching[:-1])
    after: I64 = np.where(behind, np.maximum(do.latency - np.append(0, left[:-1]), 0), 0)
    return before + after


def limited(subject: Subject, removed: I64, copying: I64, most: I64) -> I64:
    """Returns how much of the host's work before each instruction is removed, in ns, if there is a
    limit for each copy.

    Work right before a copying instruction belongs to its copy. Other work belongs to the previous
    copy of the same thread; if there is none, to the first one. If more than the limit would be
    removed with a copy, all work that belongs to the copy is removed by the same smaller share.

    Args:
        subject: The run before the edit.
        removed: The work to remove before each instruction, in ns, without a limit.
        copying: The numbers of the instructions that copy, ascending.
        most: For each instruction that copies, the most work to remove with its copy, in ns.
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
    """Returns `(operator_ns, call_ns)`: the median host time of an operator that launches one
    kernel, and that of a call that launches. Both are 0 if the run has no launches.
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
