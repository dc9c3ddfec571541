"""Finds first uses: work that a program does only once, such as creating the CUDA context, loading
modules and choosing kernels.
"""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import is_recorder_at_work, named
from unstall.timeline.ancestry import outermost
from unstall.timeline.columns import I64, Bool, HostKind, Timeline
from unstall.timeline.grouping import unique
from unstall.timeline.intervals import Intervals

# CUPTI's kinds of overhead (cupti_activity.h, CUpti_ActivityOverheadKind) that the driver causes, not the recorder.
_FIRST_USE = r"(?i)Driver Compiler|Lazy Function Loading|Runtime Triggered Module Loading"
# Frames that import a module, or compile a kernel: cpp_extension, Triton, torch.compile.
_COMPILING = (
    r"<frozen importlib\._bootstrap>\(\d+\): _find_and_load$"
    r"|.*torch/utils/cpp_extension\.py\(\d+\): (?:load(?:_inline)?|_jit_compile)$"
    r"|.*triton/(?:compiler/)?compiler\.py\(\d+\): compile$"
    r"|.*torch/_dynamo/convert_frame\.py\(\d+\): _?compile(?:_inner)?$"
)
_FIRST_LEAST_NS = 1_000_000
_FIRST_FACTOR = 20


def is_loading(timeline: Timeline) -> Bool:
    """Returns a mask of `timeline.host`: the events in which the driver creates a context, or loads a module."""
    host = timeline.host
    loading: Bool = host.kind == HostKind.LOAD
    return loading | named(timeline, _FIRST_USE, host.name, host.kind == HostKind.OVERHEAD)


def startup_rows(timeline: Timeline, ours: Bool, second_step: int | None) -> I64:
    """Returns the rows of `timeline.host` that are first uses, which a program does only once:
    imports, compilation, module loading, context creation and first launches.

    The first launch of a kernel counts if it takes long, because such a launch loads the kernel.
    Work that the recorder does once, such as the allocation of buffers for events, counts, too.

    Args:
        timeline: A recorded run.
        ours: A mask of the host events on threads that launch kernels.
        second_step: The time in ns at which the second step begins. None if the run has only one
            step.
    """
    host = timeline.host
    recording = is_recorder_at_work(timeline)
    recorder = Intervals.union(host.start[recording], host.end[recording])
    loading = is_loading(timeline) & (ours | (host.kind == HostKind.OVERHEAD))
    # Calls that only query or set something take microseconds, unless they are the first to need the context.
    asking = np.flatnonzero(ours & (host.kind == HostKind.CALL) & (host.end - host.start >= _FIRST_LEAST_NS))
    _, first = np.unique(host.name[asking], return_index=True)
    early = host.start[asking] < second_step if second_step is not None else np.zeros(len(asking), dtype=np.bool_)
    early[first] = True
    compiling = named(timeline, _COMPILING, host.name, ours & (host.kind == HostKind.PYTHON))
    certain = np.concatenate((np.flatnonzero(loading | recording | compiling), asking[early]))
    return unique(
        np.concatenate(
            (certain, _slow_firsts(timeline, ours, second_step, recorder), _slow_first_launches(timeline, ours))
        )
    )


def _slow_firsts(timeline: Timeline, ours: Bool, second_step: int | None, recorder: Intervals) -> I64:
    """Returns the rows of `timeline.host` of operators that take far longer in the first step than
    in later steps.

    Such an operator initialises a library or chooses an algorithm. If the run has only one step,
    the first call of each operator is compared with later calls of the same operator.
    """
    host = timeline.host
    everything = np.ones(len(host), dtype=np.bool_)
    calls = ours & (host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL)
    top = outermost(host.parent, host.kind == HostKind.OP, ~everything)
    ops = unique(np.concatenate((top[calls], host.op[calls]))).astype(np.int64)
    ops = ops[ops >= 0]
    if not len(ops):
        return ops
    ops = ops[np.lexsort((host.start[ops], host.name[ops]))]
    length = (host.end - host.start)[ops] - recorder.covered(host.start[ops], host.end[ops])
    opens = np.append(True, host.name[ops][1:] != host.name[ops][:-1])
    early = opens if second_step is None else host.start[ops] < second_step
    group = np.cumsum(opens) - 1
    usual = _medians(group[~early], length[~early], int(group[-1]) + 1)[group]
    slow = early & (length >= _FIRST_LEAST_NS) & (length >= _FIRST_FACTOR * usual)
    rows: I64 = ops[slow]
    return rows


def _medians(group: I64, values: I64, groups: int) -> I64:
    """Returns the lower median of the values of each group, or 0 for an empty group.

    Args:
        group: The group of each value: a number from 0 on.
        values: The values.
        groups: The number of groups.
    """
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    middle = order[np.minimum(first + np.maximum(count - 1, 0) // 2, max(len(order) - 1, 0))] if len(order) else first
    return np.where(count > 0, values[middle] if len(order) else 0, 0)


def _slow_first_launches(timeline: Timeline, ours: Bool) -> I64:
    """Returns the rows of `timeline.host` of slow first launches. Such a launch is the first launch
    of its kernel, and takes far longer than the median launch.
    """
    host, device = timeline.host, timeline.device
    known = np.flatnonzero(device.launch >= 0)
    if not len(known):
        return known
    call, first_op = np.unique(device.launch[known], return_index=True)
    kernel = device.name[known[first_op]]
    order = np.argsort(host.start[call], kind="stable")
    _, first = np.unique(kernel[order], return_index=True)
    firsts = call[order][first]
    taken = host.end[firsts] - host.start[firsts]
    usual = int(np.median(host.end[call] - host.start[call]))
    slow = taken >= max(_FIRST_LEAST_NS, _FIRST_FACTOR * usual)
    # A call that waits for room in the launch queue is slow too, but then the device is busy.
    is_launch = host.kind[firsts] == HostKind.LAUNCH
    busy = Intervals.union(device.start, device.end).covered(host.start[firsts], host.end[firsts])
    idle_before = busy * 2 < taken
    return np.sort(firsts[slow & is_launch & idle_before & ours[firsts]]).astype(np.int64)
