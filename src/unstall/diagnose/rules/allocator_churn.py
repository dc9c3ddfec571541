"""Finds calls such as `cudaMalloc` and `cudaFree` in later steps. torch's caching allocator should
avoid these calls once its memory has grown.
"""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.allocation import churning, in_a_row
from unstall.diagnose.run import Group, Run
from unstall.figures import counted
from unstall.locate.kinds import named
from unstall.result import Finding
from unstall.timeline.columns import I64, HostKind
from unstall.ways_to_wait import CACHE_GROWS, CACHE_IS_EMPTIED, CACHE_IS_GIVEN_BACK

_PINNED = re.compile(r"(cuda|cu|hip)(Host|MallocHost|FreeHost|MemHost|MemAllocHost|MemFreeHost)")
_EMPTY_CACHE = re.compile(r".*empty_?cache", re.IGNORECASE)  # a frame, a built-in function, or the user's annotation
_OFTEN = 1 / 3  # of launches: an operator that makes a tensor launches one kernel to three

_CACHING_IS_OFF = (
    "turn the caching allocator on: each tensor is taken from the driver and given back to it, as with "
    "PYTORCH_NO_CUDA_MEMORY_CACHING=1: unset that"
)
_GROWS = (
    "nothing is given back, so the cache is growing: if that stops after the set-up, there is nothing to do; if not, "
    + CACHE_GROWS.fix
)


def allocator_churn(run: Run) -> list[Finding]:
    """Returns a finding for each line that makes the driver allocate or free memory after the
    memory of torch's allocator has first grown.

    A line that does this for both device memory and pinned memory has two findings.
    """
    rows = churning(run)
    lost = run.lost_to("allocator")
    of_device = calls_for_device_memory(run)
    fix = _fix(run, of_device)
    return [
        *(_device_memory(run, group, fix, int(lost[group.rows].sum())) for group in run.lines(of_device)),
        *(
            _pinned_memory(run, group, int(lost[group.rows].sum()))
            for group in run.lines(np.setdiff1d(rows, of_device))
        ),
    ]


def calls_for_device_memory(run: Run) -> I64:
    """Returns the driver calls in the steps that allocate or free device memory, as indices of rows
    of `timeline.host`. Leaves out the calls with which the memory of torch's allocator first grows.
    """
    rows = churning(run)
    return rows[~named(run.timeline, _PINNED, run.timeline.host.name[rows])]


def _fix(run: Run, rows: I64) -> str:
    """Returns the advice. It depends on what frees the memory. `rows` are calls such as cudaMalloc,
    as indices of rows of `timeline.host`.
    """
    freed = run.timeline.host.kind[rows] == HostKind.FREE
    if not freed.any():
        return _GROWS
    if _calls_empty_cache(run):
        return CACHE_IS_EMPTIED.fix
    return _CACHING_IS_OFF if _for_each_tensor(run, rows[~freed], rows[freed]) else CACHE_IS_GIVEN_BACK.fix


def _calls_empty_cache(run: Run) -> bool:
    host = run.timeline.host
    may = np.flatnonzero(np.isin(host.kind, (HostKind.PYTHON, HostKind.ANNOTATION)) & run.inside)
    if named(run.timeline, _EMPTY_CACHE, host.name[may]).any():
        return True
    functions = run.timeline.lines.function
    return bool(named(run.timeline, _EMPTY_CACHE, functions[functions >= 0]).any())


def _for_each_tensor(run: Run, taken: I64, freed: I64) -> bool:
    """Returns whether the program allocates and frees memory for each tensor.

    The result is True if many launches have their own allocation before them, and if most frees
    have a launch or an allocation between them.

    Args:
        run: The recorded run.
        taken: The calls that allocate, as indices of rows of `timeline.host`.
        freed: The calls that free, as indices of rows of `timeline.host`.
    """
    host = run.timeline.host
    launches = np.sort(host.start[(host.kind == HostKind.LAUNCH) & run.inside])
    before = np.unique(np.searchsorted(launches, host.start[taken]))
    apart = np.unique(np.searchsorted(np.sort(np.append(launches, host.start[taken])), host.start[freed]))
    return len(before) > _OFTEN * len(launches) and 2 * len(apart) > len(freed)


def _device_memory(run: Run, group: Group, fix: str, exposed: int) -> Finding:
    kinds = run.timeline.host.kind[group.rows]
    taken, returned = bool((kinds == HostKind.ALLOC).any()), bool((kinds == HostKind.FREE).any())
    what = "taken from, or given back to," if taken and returned else "given back to" if returned else "taken from"
    waits = ": giving memory back waits for the whole device" if returned else ": the host is busy in the driver"
    count = len(in_a_row(run, group.rows)) if returned else len(group.rows)
    if count < len(group.rows):
        waits += ", once for calls in a row"
    return run.finding(
        "allocator-churn",
        group,
        title=f"Device memory is {what} the driver",
        saw=_calls(run, group) + waits,
        fix=fix,
        safe_if=CACHE_GROWS.safe_if,
        count=count,
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
