"""Finds waits that the program makes in order to read a clock."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.locate.kinds import named
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool, ClockReads, Timeline
from unstall.timeline.remembered import remembered
from unstall.ways_to_wait import TENSORS_OWN, TO_READ_A_CLOCK, TO_READ_EVENTS, Way

_NEVER = np.iinfo(np.int64).max
_TIMERS = re.compile(r"(.*/)?torch/utils/benchmark/")  # its timer waits before it reads the clock
_CALLS_THAT_WAIT = re.compile(rf".*({TENSORS_OWN.pattern})|$")  # built-in functions have no file


def way_to_time(run: Run, waits: I64) -> Way | None:
    """Returns the way of these waits if the program, or torch's benchmark, makes most of them in order to read a clock:
    that of the host or, after CUDA events, a device's. Otherwise, returns None.

    `waits` are the host rows of explicit synchronizations at one line. An edit keeps or removes a line, so there is one
    verdict for the line. The last wait of a loop may come before a read of the clock while the others do not.
    """
    reads = reads_after(run, waits)
    of_host = by_torchs_timer(run, waits) | np.append(run.timeline.clock_reads.of_host, False)[reads]  # -1 is the last
    of_device = (reads >= 0) & ~of_host
    if 2 * np.count_nonzero(of_host | of_device) <= len(waits):
        return None
    return TO_READ_A_CLOCK if np.count_nonzero(of_host) >= np.count_nonzero(of_device) else TO_READ_EVENTS


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
    """Returns, for each wait, the row of `ClockReads` for the next thing that the program does: a read of a clock.
    Returns -1 if the program does something else first, such as launching, or if no reads of a clock are known. If
    it reads several clocks next, the row is one of the host's clock, which more depends on.

    `waits` are host rows. Only the main thread's reads are known. That is the thread of the first host event.
    """
    host, reads = run.timeline.host, run.timeline.clock_reads
    if not len(reads) or not len(waits):
        return np.full(len(waits), -1, np.int64)
    main, begins = _main_thread(run.timeline)
    ends = np.where(host.thread[waits] == main, host.end[waits], _NEVER)
    other = np.append(begins, _NEVER)[np.searchsorted(begins, ends)]
    of_host = _next_read(reads, np.flatnonzero(reads.of_host), ends, other)
    return np.where(of_host >= 0, of_host, _next_read(reads, np.flatnonzero(~reads.of_host), ends, other))


def _next_read(reads: ClockReads, rows: I64, ends: I64, other: I64) -> I64:
    """Returns, for each wait, the first of the reads `rows` after it; -1 if the program does something else before.

    Args:
        reads: All reads of clocks.
        rows: Some of them, as rows of `reads`.
        ends: When each wait ends, in ns.
        other: When the program does something else after each wait, in ns.
    """
    read = np.searchsorted(reads.time[rows], ends)
    first = np.append(reads.time[rows], _NEVER)[read] <= np.minimum(other, _NEVER - 1)
    return np.where(first, np.append(rows, -1)[read], -1).astype(np.int64)


@remembered
def _main_thread(timeline: Timeline) -> tuple[int, I64]:
    """Returns the main thread, and the sorted start times of its host events, in ns."""
    host = timeline.host
    main = int(host.thread[np.argmin(host.start)])
    return main, np.sort(host.start[host.thread == main])
