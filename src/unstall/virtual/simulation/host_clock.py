"""Finds how long the host worked before each record of the shim's log, and before each read of the
clock. The time is modelled for the host of the modelled GPU, measured on this machine, or a mix of
both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.log import Stack
from unstall.virtual.simulation.free_work import FreeWork


class Moment(NamedTuple):
    """The moment at which a thread reads the clock.

    Attributes:
        thread: The number of the thread.
        stack: The number of the thread's Python stack in the shim's log.
        host_ns: The time of CLOCK_MONOTONIC.
        computing_ns: For how long the thread has computed values of tensors since its last record, or waited for a
            core that another process had.
    """

    thread: int
    stack: int
    host_ns: int
    computing_ns: int


class HostClock(Protocol):
    """Finds how long the host worked before each record of the shim's log, and before each read of
    the clock.

    Attributes:
        scale: The factor by which measured times are multiplied.
        free: The work of the main thread that did not advance its clock.
    """

    scale: float
    free: FreeWork

    def know(self, stacks: Sequence[Stack]) -> None:
        """Adds the next Python stacks of the shim's log. They are numbered in the order in which they are added."""

    def work(self, records: np.ndarray, usual: I64, woken: Bool, begun: Bool) -> I64:
        """Returns, for each record of the shim's log, how long the host worked since the record
        before it of the same thread, in ns. All records must be passed to this method in the order
        of the log.

        Args:
            records: The next records of the log.
            usual: For each record, the modelled host time of what it stands for, in ns.
            woken: For each record, whether its thread was woken by the record right before it in
                the log. If so, the thread's work began at that record, although it is another
                thread's.
            begun: For each record, whether it is the first of a backward pass on autograd's thread.
        """

    def read(self, moment: Moment) -> int:
        """Returns how long the host worked since the thread's last record or read of the clock, in
        ns. All earlier records must have been passed to `work`.
        """

    def leave_out(self, thread: int, ns: int) -> None:
        """Excludes real time from the work of `thread` since its last record or read of the clock,
        because the simulation took that time.

        Args:
            thread: The number of the thread.
            ns: The time in ns.
        """


def by_thread(thread: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields `(number, rows)` for each thread. `rows` are the rows of that thread's records.

    Args:
        thread: For each record, the number of its thread. At least one record.
    """
    if thread.min() == thread.max():
        yield int(thread[0]), np.arange(len(thread))
        return
    for number in np.unique(thread).tolist():
        yield number, np.flatnonzero(thread == number)


def previous(thread: np.ndarray, values: I64, last: dict[int, int], none: int) -> I64:
    """Returns, for each record, the value of the record before it of the same thread.

    Args:
        thread: For each record, the number of its thread.
        values: For each record, its value.
        last: By thread, the value of its last record before these. It is updated to the last of
            these.
        none: What stands for the value if there is no record before.
    """
    before = np.empty_like(values)
    if not len(values):
        return before
    if thread.min() == thread.max():
        before[1:] = values[:-1]
        before[0] = last.get(int(thread[0]), none)
        last[int(thread[0])] = int(values[-1])
        return before
    order = np.argsort(thread, kind="stable")
    sorted_values, sorted_threads = values[order], thread[order]
    shifted = np.append(none, sorted_values[:-1])
    first = np.flatnonzero(np.append(True, sorted_threads[1:] != sorted_threads[:-1]))
    for row, stop in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        number = int(sorted_threads[row])
        shifted[row] = last.get(number, none)
        last[number] = int(sorted_values[stop - 1])
    before[order] = shifted
    return before
