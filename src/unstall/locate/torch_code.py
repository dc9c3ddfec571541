"""Finds when the host runs torch's own Python code between operators: calls of modules, an
optimizer's loop over its parameters, the start of a backward pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from unstall.frameworks import FRAMEWORKS, is_framework, top_module
from unstall.locate.kinds import is_asleep, is_waiting_for_thread, named
from unstall.locate.places import Places
from unstall.timeline.ancestry import nearest, open_at
from unstall.timeline.columns import I8, I32, I64, Bool, HostKind, Table, Timeline
from unstall.timeline.grouping import by_text, groups, unique
from unstall.timeline.intervals import Intervals
from unstall.timeline.remembered import remembered

# What runs for each operator, module, backward pass and optimizer step. Left out is what does other work, such as
# torch.save, distributed, compilation and printing.
CALLS_OPERATORS = re.compile(
    r"(?:.*/)?torch/(?:(?:_library|amp|autograd|compiler|distributions|func|nn|optim)/"
    r"|(?:_compile|_jit_internal|_ops|_tensor|functional|overrides)\.py"
    r"|_dynamo/(?:decorators|eval_frame|external_utils)\.py"
    r"|cuda/(?:__init__|_utils|streams)\.py"
    r"|utils/(?:_contextlib|_device|_foreach_utils|_python_dispatch|_pytree|checkpoint|hooks)\.py)"
)
"""Matches paths of torch's Python code by which a program calls operators."""
_FRAME = re.compile(r"(?P<file>.*)\(-?\d+\): ")
# Not LBFGS: most of what happens in its steps is a closure of the user.
_OPTIMIZER = (
    r"Optimizer\.(?:step|zero_grad)#(?:ASGD|Ada(?:delta|factor|grad|m|max|mW)|Muon|NAdam|RAdam|RMSprop|Rprop|SGD"
    r"|SparseAdam)\."
)


class Stretches(Table, frozen=True, eq=False):
    """Intervals of time of single threads, as columns. Those of one thread do not overlap."""

    thread: I32
    start: I64
    end: I64

    def of_threads(self, threads: I64) -> Intervals:
        """Returns the time in which at least one of `threads` has a stretch."""
        mine = np.isin(self.thread, threads)
        return Intervals.union(self.start[mine], self.end[mine])


class _Whose(IntEnum):
    CALLERS = 0  # the standard library and built-in functions work for their caller
    TORCHS = 1
    OTHERS = 2


@remembered
def torch_code(timeline: Timeline) -> Stretches:
    """Returns when each thread runs torch's own Python code, as far as the recording tells it. Sleep
    and waits for other threads do not count.

    Frames tell it, if they were recorded all the time: the innermost frame is torch's then, or is of
    a function of the standard library that torch's code calls. If frames were recorded only at
    calls, or not at all, the annotations of torch's optimizers tell it for these. In a run whose host is modelled,
    the program's own work takes no time, so all time is torch's.
    """
    host = timeline.host
    waits = is_asleep(timeline) | is_waiting_for_thread(timeline)
    if timeline.meta.free_work:
        return _all_but(timeline, waits)
    python = np.flatnonzero(host.kind == HostKind.PYTHON)
    if not len(python) or timeline.meta.frames_at_calls:
        rows = np.flatnonzero(named(timeline, _OPTIMIZER, host.name, host.kind == HostKind.ANNOTATION))
        return Stretches(host.thread[rows], host.start[rows], host.end[rows])
    whose = _whose(timeline, python)
    whose[waits[python]] = _Whose.OTHERS
    counts = (whose != _Whose.CALLERS) & (host.end > host.start)[python]
    python, torchs = python[counts], np.zeros(len(host) + 1, dtype=np.bool_)
    torchs[python] = whose[counts] == _Whose.TORCHS
    parts = []
    for thread, mine in groups(host.thread[python]):
        time, row = open_at(python[mine], host.start, host.end)
        runs = torchs[row[:-1]]
        parts.append((thread, Intervals.union(time[:-1][runs], time[1:][runs])))
    return _joined(parts)


def called_by_torch(places: Places, rows: I64) -> Bool:
    """Returns, for each event, whether torch's own Python code called it, below the user's innermost frame. `rows` are
    rows of `timeline.host`.
    """
    timeline = places.timeline
    stacks, lines = timeline.stacks, timeline.lines
    torchs = named(timeline, CALLS_OPERATORS, lines.file)[stacks.line]
    found = np.append(nearest(stacks.parent, torchs | places.is_user_frame), -1)[timeline.host.stack[rows]]
    chosen: Bool = np.append(torchs & ~places.is_user_frame, False)[found]
    return chosen


def _all_but(timeline: Timeline, waits: Bool) -> Stretches:
    """Returns the time of each thread without some of its events. `waits` is a mask of `timeline.host`."""
    host = timeline.host
    start, end = int(host.start.min(initial=0)), int(max(host.end.max(initial=0), timeline.device.end.max(initial=0)))
    rows = np.flatnonzero(waits)
    waiting = {
        thread: Intervals.union(host.start[rows[mine]], host.end[rows[mine]])
        for thread, mine in groups(host.thread[rows])
    }
    threads = unique(host.thread).tolist()
    return _joined([(thread, waiting.get(thread, Intervals.none()).gaps(start, end)) for thread in threads])


def _joined(parts: Sequence[tuple[int, Intervals]]) -> Stretches:
    """Returns the intervals of several threads, each with the number of its thread, as one table."""
    if not parts:
        return Stretches.none()
    return Stretches(
        np.repeat(np.array([thread for thread, _ in parts], np.int32), [len(spans) for _, spans in parts]),
        np.concatenate([spans.start for _, spans in parts]),
        np.concatenate([spans.end for _, spans in parts]),
    )


def _whose(timeline: Timeline, rows: I64) -> I8:
    """Returns whose code each frame is. `rows` are rows of `timeline.host`: Python frames."""

    def of(index: int) -> _Whose:
        frame = _FRAME.match(timeline.text(index))
        if frame is None:
            return _Whose.CALLERS
        file = frame["file"]
        if CALLS_OPERATORS.match(file):
            return _Whose.TORCHS
        return _Whose.CALLERS if is_framework(file) and top_module(file) not in FRAMEWORKS else _Whose.OTHERS

    return by_text(timeline.host.name[rows], of).astype(np.int8)
