"""Finds waits that the program makes in order to read a clock."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.timeline.columns import I64

_TIMERS = re.compile(r"(.*/)?torch/utils/benchmark/")  # its timer waits before it reads the clock
_MOST = 0.5  # of the waits: the last of a loop's waits may come before a read of the clock without being for it


def are_for_a_clock(run: Run, waits: I64) -> bool:
    """Returns whether the program, or torch's benchmark, makes these waits in order to read a clock. `waits` are the
    host rows of explicit synchronizations at one line.
    """
    for_a_clock = (reads_after(run, waits) >= 0) | run.within(waits, _TIMERS)
    return bool(for_a_clock.mean() >= _MOST)


def reads_after(run: Run, waits: I64) -> I64:
    """Returns, for each wait, the row of `ClockReads` for the next thing that the program does: a read of the clock.
    Returns -1 if the program does something else first, such as launching, or if no reads of the clock are known.

    `waits` are host rows. Only the main thread's reads are known. That is the thread of the first host event.
    """
    host, reads = run.timeline.host, run.timeline.clock_reads
    none = np.full(len(waits), -1, np.int64)
    if not len(reads) or not len(waits):
        return none
    main = host.thread[np.argmin(host.start)]
    begins = np.sort(host.start[host.thread == main])
    ends = host.end[waits]
    read = np.searchsorted(reads.time, ends)
    after = np.searchsorted(begins, ends)
    never = np.iinfo(np.int64).max
    read_at = np.append(reads.time, never)[read]
    first = (read < len(reads)) & (read_at <= np.append(begins, never)[after])
    return np.where(first & (host.thread[waits] == main), read, none).astype(np.int64)
