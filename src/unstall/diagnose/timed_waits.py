"""Finds waits that the program makes in order to read a clock."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.locate.kinds import named
from unstall.timeline.ancestry import nearest
from unstall.timeline.columns import I64, Bool
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
    stacks, file = run.timeline.stacks, run.timeline.lines.file
    asks = nearest(stacks.parent, ~named(run.timeline, _CALLS_THAT_WAIT, file)[stacks.line])
    stack = run.timeline.host.stack[waits]
    asking = np.append(asks, np.int32(-1))[stack]  # index -1 is the last element
    timers: Bool = np.append(named(run.timeline, _TIMERS, file)[stacks.line], False)[asking]
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
    main = host.thread[np.argmin(host.start)]
    begins = np.sort(host.start[host.thread == main])
    ends = host.end[waits]
    read = np.searchsorted(reads.time, ends)
    after = np.searchsorted(begins, ends)
    never = np.iinfo(np.int64).max
    read_at = np.append(reads.time, never)[read]
    first = (read < len(reads)) & (read_at <= np.append(begins, never)[after])
    return np.where(first & (host.thread[waits] == main), read, none).astype(np.int64)
