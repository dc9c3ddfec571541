"""`cudaMalloc`, `cudaFree` and pinned allocation in the steady state, where the cache should serve all."""

from __future__ import annotations

import re

from unstall.diagnose.activity import named
from unstall.diagnose.allocation import churning
from unstall.diagnose.run import Group, Run
from unstall.result import Finding

_PINNED = re.compile(r"(cuda|cu|hip)(Host|MallocHost|FreeHost|MemHost|MemAllocHost|MemFreeHost)")


def allocator_churn(run: Run) -> list[Finding]:
    """One finding a line and kind of memory."""
    rows = churning(run)
    lost = run.lost_to("allocator")
    pinned = named(run.timeline, _PINNED, run.timeline.host.name[rows])
    return [
        *(_device_memory(run, group, int(lost[group.rows].sum())) for group in run.lines(rows[~pinned])),
        *(_pinned_memory(run, group, int(lost[group.rows].sum())) for group in run.lines(rows[pinned])),
    ]


def _device_memory(run: Run, group: Group, exposed: int) -> Finding:
    return run.finding(
        "allocator-churn",
        group,
        title="Device memory is taken from, or given back to, the driver in every step",
        saw=_calls(run, group) + ": cudaFree waits for the whole device, and cudaMalloc may",
        fix="do not call torch.cuda.empty_cache() in a loop; let the caching allocator keep its blocks; if sizes vary, "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or pad to a few fixed shapes",
        safe_if="the device has room for what the cache keeps",
        count=len(group.rows),
        edit="keep-cache",
        confidence="high" if len(run.steps) > 1 else "low",
        total_exposed_ns=exposed,
        harmless=run.negligible(exposed),
    )


def _pinned_memory(run: Run, group: Group, exposed: int) -> Finding:
    return run.finding(
        "pinned-allocation",
        group,
        title="Pinned host memory is allocated in every step",
        saw=_calls(run, group) + ": pinning pages is slow, and stops the host",
        fix="allocate pinned buffers once and copy into them; DataLoader(pin_memory=True) does it on its own thread",
        safe_if="a buffer is not refilled before its last copy has ended",
        count=len(group.rows),
        total_exposed_ns=exposed,
        harmless=run.negligible(exposed),
    )


def _calls(run: Run, group: Group) -> str:
    names = sorted({run.timeline.text(int(i)) for i in run.timeline.host.name[group.rows]})
    return f"{len(group.rows):,} calls of {', '.join(names)}"
