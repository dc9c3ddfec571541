"""Finds lines at which reserved device memory grows in steps: each larger shape takes new memory,
and the memory of smaller shapes stays reserved.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.reserved import rows_at
from unstall.diagnose.run import Group, Run
from unstall.figures import counted, share, size
from unstall.result import Finding
from unstall.timeline.columns import I64, Memory
from unstall.timeline.grouping import groups

_STEPS = 3  # that a line took new memory for more bytes than ever before
_WASTED = 0.1  # of the reserved memory: more than what rounding to blocks and segments leaves unused
_LEAST_BYTES = 20 << 20  # the size of a segment


def growing_memory(run: Run) -> list[Finding]:
    """Returns at most one finding for each device: the line at which its reserved memory grew most,
    because each larger shape takes new memory.

    The finding is about memory, and its exposed time is 0: the time of the driver's calls is in
    findings of the rule `allocator_churn`. There are findings only if the allocator's events were
    recorded.
    """
    memory = run.timeline.memory
    findings = []
    for device, mine in groups(memory.device):
        if device >= 0 and (found := _of_device(run, memory, mine)) is not None:
            findings.append(found)
    return findings


def _of_device(run: Run, memory: Memory, mine: I64) -> Finding | None:
    reserved, allocated = memory.reserved[mine], memory.allocated[mine]
    most, used = int(reserved.max()), int(allocated.max())
    if most - used < max(_WASTED * most, _LEAST_BYTES):
        return None
    rises = np.flatnonzero((np.diff(reserved) > 0) & (memory.size[mine[1:]] > 0)) + 1
    rows = rows_at(run, memory.time[mine[rises]])
    rises, rows = rises[rows >= 0], rows[rows >= 0]
    taken, place, larger = 0, -1, rises[:0]
    for where, at in groups(run.places.place[rows]):
        sizes = memory.size[mine[rises[at]]]
        growing = at[np.append(True, sizes[1:] > np.maximum.accumulate(sizes)[:-1])]
        grown = int((reserved[rises[growing]] - reserved[rises[growing] - 1]).sum())
        if len(growing) >= _STEPS and grown > taken:
            taken, place, larger = grown, where, growing
    if not len(larger):
        return None
    first, last = (int(memory.size[mine[rises[at]]]) for at in (larger[0], larger[-1]))
    calls = np.unique(rows[larger]).astype(np.int64)
    return run.finding(
        "growing-memory",
        Group(place, run.places.op_name(int(calls[0])), calls),
        title="Memory is reserved in growing steps: smaller blocks do not fit the next shape",
        saw=f"{counted(len(larger), 'larger request')} there, from {size(first)} to {size(last)}, reserved "
        f"{size(taken)}; the run reserves {size(most)}, of which at most {size(used)} are in use at a time "
        f"({share(most - used, most)} is not)",
        fix="run the largest shape first: unstall.warm_up(forward_and_backward, largest, usual), or pad to few "
        "lengths; or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets blocks grow",
        safe_if="the largest shape fits, and the step has no lasting effects (forward and backward, no optimizer)",
        count=len(larger),
        total_wait_ns=0,
        total_exposed_ns=0,
        confidence="medium",
    )
