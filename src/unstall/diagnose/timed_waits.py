"""Finds waits that the program makes in order to read a clock."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.locate.kinds import named
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool, Timeline
from unstall.timeline.remembered import remembered
from unstall.ways_to_wait import TENSORS_OWN

_TIMERS = re.compile(r"(.*/)?torch/utils/benchmark/")  # its timer waits before it reads the clock
_CALLS_THAT_WAIT = re.compile(rf".*({TENSORS_OWN.pattern})|$")  # built-in functions have no file


def are_for_a_clock(run: Run, waits: I64) -> bool:
    """Returns whether the program, or torch's benchmark, makes most of these waits in order to read a clock.

    `waits` are the host rows of explicit synchronizations at one line. An edit keeps or removes a line, so there is one
    verdict for the line. The last wait of a loop may come before a read of the clock while the others do not.
    """
    for_a_clock = (reads_after(run, waits) >= 0) | by_torchs_timer(run, waits)
    return bool(2 * np.count_nonzero(for_a_clock) > len(waits))


def by_torchs_timer(run: Run, waits: I64) -> Bool:
    """Returns a mask over `waits`: the waits that `torch.utils.benchmark` itself asks for. The waits of a program that
    it times are not among them. `waits` are host rows.
    """
    asked: Bool = np.append(_asked_by_the_timer(run.timeline), False)[run.timeline.host.stack[waits]]  # -1 is the last
    return asked


@remembered
def _asked_by_the_timer(timeline: Timeline) -> Bool:
    """Returns a mask of `timeline.stacks`: the stacks in which the frame that asks torch to wait is in the timer of
    `torch.utils.benchmark`.
    """
    stacks, file = timeline.stacks, timeline.lines.file
    asks = nearest(stacks.parent, ~named(timeline, _CALLS_THAT_WAIT, file)[stacks.line])
    timers: Bool = np.append(named(timeline, _TIMERS, file)[stacks.line], False)[asks]
    return timers


def reads_after(run: Run, waits: I64) -> I64:
    """Returns, for each wait, the row of `ClockReads` for the next thing that the program does: a read of the clock.
    Returns -1 if the program does something else first, such as launching, or if no reads of the clock are known.

    `waits` are host rows. Only the main thread's reads are known. That is the thread of the first host event.
    """
    host, reads = run.timeline.host, run.timeline.clock_reads
    none = np.full(len(waits), -1, np.int64)
    if not len(reads) or not len(waits):
        return none
    main, begins = _main_thread(run.timeline)
    ends = host.end[waits]
    read = np.searchsorted(reads.time, ends)
    after = np.searchsorted(begins, ends)
    never = np.iinfo(np.int64).max
    read_at = np.append(reads.time, never)[read]
    first = (read < len(reads)) & (read_at <= np.append(begins, never)[after])
    return np.where(first & (host.thread[waits] == main), read, none).astype(np.int64)


@remembered
def _main_thread(timeline: Timeline) -> tuple[int, I64]:
    """Returns the main thread, and the sorted start times of its host events, in ns."""
    host = timeline.host
    main = int(host.thread[np.argmin(host.start)])
    return main, np.sort(host.start[host.thread == main])
