"""Finds where host memory that is copied to the device comes from.

It may be a tensor that already existed, a tensor that is made for each copy, or a batch of a
DataLoader.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np

from unstall.diagnose.run import Run
from unstall.locate.kinds import is_data_loading, named
from unstall.locate.operations import has_operators
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool, HostKind

CopySource = Literal["kept", "made", "loader", "workers", "derived", "unknown"]
"""Where host memory that is copied to the device comes from. `kept`: tensors that already exist.
`made`: tensors that the program makes on the host. `loader`: a DataLoader that makes its batches in
this process. `workers`: a DataLoader with worker processes. `derived`: tensors that the program
makes on the host from a batch. `unknown`: this cannot be told.
"""

# Operators that return an existing tensor or no tensor: they make nothing.
_MAKES_NONE = re.compile(
    r"(aten::)?(select|slice|narrow|view|view_as|_?reshape\w*|expand|expand_as|(un)?squeeze|permute|transpose|t|T|numpy_T"
    r"|as_strided|unbind|split|chunk|alias|detach_?|lift_fresh|to|item|_local_scalar_dense|is_nonzero|is_pinned"
    r"|__\w+__|zero_|requires_grad_)$"
)
_IN_THIS_PROCESS = re.compile(r".*_SingleProcessDataLoaderIter")
_OFTEN = 0.5  # of the copies, or of the steps if each has several copies


def source_of_copies(run: Run, calls: I64) -> CopySource:
    """Returns where the host memory comes from that some copies to the device read.

    The result depends on what the host did between the previous CUDA call and each copy. A
    DataLoader may have returned a batch, or an operator on the host may have made a tensor. If no
    operators were recorded, the result is "unknown".

    Args:
        run: The recorded run.
        calls: The calls that made the copies, as indices of rows of `timeline.host`.
    """
    if not has_operators(run.timeline) or not len(calls):
        return "unknown"
    host, top = run.timeline.host, run.places.top_op
    opens = np.where(top[calls] >= 0, top[calls], calls)
    driver = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    at = np.searchsorted(driver, opens) - 1
    before = np.where(at >= 0, driver[np.maximum(at, 0)], -1)
    # Host rows of a thread are in order of time.
    before = np.where((before >= 0) & (host.thread[before] == host.thread[opens]), before, opens - 1)
    first = at < 0
    least = _OFTEN * min(len(run.steps), len(calls))

    def often(since: I64, rows: I64) -> bool:
        between = np.searchsorted(rows, opens) > np.searchsorted(rows, since)
        return bool((between & ~first).sum() >= least)

    single = named(run.timeline, _IN_THIS_PROCESS, host.name)
    loading = single | is_data_loading(run.timeline)
    batches = np.flatnonzero(loading)
    last = np.append(-1, batches)[np.searchsorted(batches, opens)]
    # What a DataLoader does to make a batch does not count as the program's own work.
    makes = np.flatnonzero(_makes_on_host(run) & (nearest(host.parent, loading) < 0))
    if often(before, batches):
        if often(np.maximum(before, last + 1), makes):
            return "derived"
        return "loader" if often(before, np.flatnonzero(single)) else "workers"
    return "made" if often(before, makes) else "kept"


def _makes_on_host(run: Run) -> Bool:
    """Returns a mask of the outermost operators that make a tensor and launch nothing on a device."""
    timeline, host, top = run.timeline, run.timeline.host, run.places.top_op
    outer = (host.kind == HostKind.OP) & (top == np.arange(len(host)))
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    at_work = top[calls]
    outer[at_work[at_work >= 0]] = False
    names = np.unique(host.name[outer])
    making = [name for name in names.tolist() if not _MAKES_NONE.match(timeline.text(name))]
    chosen: Bool = outer & np.isin(host.name, np.array(making, dtype=np.int32))
    return chosen
