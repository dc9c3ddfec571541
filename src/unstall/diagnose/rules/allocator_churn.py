"""`cudaMalloc`, `cudaFree` and pinned allocation in the steady state, where the cache should serve everything."""

from __future__ import annotations

import re

from unstall.diagnose.allocation import churning
from unstall.diagnose.run import Group, Run
from unstall.figures import counted
from unstall.locate.kinds import named
from unstall.result import Finding
from unstall.timeline.columns import HostKind

_PINNED = re.compile(r"(cuda|cu|hip)(Host|MallocHost|FreeHost|MemHost|MemAllocHost|MemFreeHost)")


_KEEP = (
    "let the caching allocator keep its blocks: remove torch.cuda.empty_cache(); if sizes vary, set "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or pad to a few fixed shapes"
)
_GROWS = (
    "nothing is given back, so the cache is growing: if that stops after the set-up, there is nothing to do; if not, "
    "call the largest sizes first (unstall.warm_up); if sizes vary, set "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or pad to a few fixed shapes"
)


def allocator_churn(run: Run) -> list[Finding]:
    """Returns one finding per line and kind of memory."""
    rows = churning(run)
    lost = run.lost_to("allocator")
    pinned = named(run.timeline, _PINNED, run.timeline.host.name[rows])
    fix = _KEEP if (run.timeline.host.kind[rows[~pinned]] == HostKind.FREE).any() else _GROWS
    return [
        *(_device_memory(run, group, fix, int(lost[group.rows].sum())) for group in run.lines(rows[~pinned])),
        *(_pinned_memory(run, group, int(lost[group.rows].sum())) for group in run.lines(rows[pinned])),
    ]


def _device_memory(run: Run, group: Group, fix: str, exposed: int) -> Finding:
    kinds = run.timeline.host.kind[group.rows]
    taken, returned = bool((kinds == HostKind.ALLOC).any()), bool((kinds == HostKind.FREE).any())
    what = "taken from, or given back to," if taken and returned else "given back to" if returned else "taken from"
    waits = ": giving memory back waits for the whole device" if returned else ": the host waits in the driver"
    return run.finding(
        "allocator-churn",
        group,
        title=f"Device memory is {what} the driver",
        saw=_calls(run, group) + waits,
        fix=fix,
        safe_if="the device has enough memory for the cache",
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
        title="Pinned host memory is allocated",
        saw=_calls(run, group) + ": pinning pages is slow and blocks the host",
        fix="allocate pinned buffers once and copy into them; DataLoader(pin_memory=True) pins on a thread of its own",
        safe_if="a buffer is not refilled before its last copy has ended",
        count=len(group.rows),
        total_exposed_ns=exposed,
        harmless=run.negligible(exposed),
    )


def _calls(run: Run, group: Group) -> str:
    names = sorted({run.timeline.text(int(i)) for i in run.timeline.host.name[group.rows]})
    return f"{counted(len(group.rows), 'call')} of {', '.join(names)}"
