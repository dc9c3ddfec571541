"""Finds the order between log records of different threads: which records had to wait for a record of another thread.

- Autograd's threads run no Python. An autograd thread runs while the thread that called `backward()` waits. The calling
  thread continues when the autograd thread has finished.

- The first record of a Python thread comes after all records that other threads made before the thread started. After
  its first record, the thread runs independently. If the thread waits for an event of another thread, the waiting
  thread continues after the other thread has recorded the event.

- A thread of a process group (for example of gloo) also runs no Python. For each collective, the calling thread
  passes a stream to the process group's thread, and then the process group's thread begins the collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.log import NO_PYTHON, LogCode, chosen
from unstall.virtual.simulation.captures import Place

_APART = chosen(LogCode.ADVANCE, LogCode.CLOCK)
_OF_COLLECTIVES = chosen(LogCode.MARK_BEGIN, LogCode.SYNC_STREAM)


@dataclass(frozen=True, slots=True)
class Join:
    """A call that waited for another thread. Rows are rows of the current batch of log records."""

    row: int  # the call's record
    thread: int  # the thread that it waited for
    after: int  # row of that thread's record, or -1 if it was simulated in an earlier batch
    instruction: int = -1  # that thread's instruction; -1 if it is its last one before this batch


class HandOvers:
    """Finds which threads waited for which other threads, over all batches of log records."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._serving: set[int] = set()
        self._of_groups: set[int] = set()
        self._waiting: dict[int, int] = {}  # by caller: the serving thread that it waits for
        self._last: dict[int, int] = {}  # last instruction of each thread
        self._latest = -1  # the thread of the last record
        self._latest_is_apart = False
        self._turn = -1  # the thread of the last record outside process groups
        self._last_row: dict[int, int] = {}
        self._given: dict[Place, tuple[int, int]] = {}  # by stream that was made to wait: (thread, instruction)
        self._given_row: dict[Place, int] = {}

    def knows(self, thread: int) -> bool:
        return thread in self._known

    def is_behind(self, thread: int) -> bool:
        """Returns whether the thread's next log record comes after records of other threads. This is the case if the
        thread is new, or if the thread waited for a thread that runs no Python.
        """
        return thread in self._waiting or (thread > 0 and not self.knows(thread))

    def joins(self, records: np.ndarray) -> tuple[list[Join], Bool]:
        """Returns (joins, woken). `joins` has one `Join` for each log record that had to wait for another thread.
        `woken` has one bool for each log record: whether the previous record woke this record's thread.
        """
        thread = records["thread"]
        woken = np.zeros(len(records), np.bool_)
        apart = _APART[records["code"]]
        changed = np.append(
            thread[0] != self._latest or self._latest_is_apart, (thread[1:] != thread[:-1]) | apart[:-1]
        )
        changes = changed.nonzero()[0]
        self._latest_is_apart = bool(apart[-1])
        found: list[Join] = []
        self._last_row = {}
        before = self._latest
        for row in changes.tolist():
            if row:
                self._last_row[before] = row - 1
            current = int(thread[row])
            other = self._waits_for(records[row], current)
            if other >= 0:
                found.append(Join(row, other, self._last_row.get(other, -1)))
                woken[row] = other == before
            before = current
        self._last_row[before] = len(records) - 1
        self._latest = before
        return found + self._collectives(records), woken

    def targets(self, joins: list[Join], ends: I64) -> list[int]:
        """Returns, for each call in `joins`, the number of the instruction that the call waits for. `ends[row]` is one
        more than the number of the last instruction of the log record in row `row`.
        """
        return [
            int(ends[join.after]) - 1
            if join.after >= 0
            else join.instruction
            if join.instruction >= 0
            else self._last[join.thread]
            for join in joins
        ]

    def remember(self, ends: I64) -> None:
        """Called when the records that were passed to the last call of `joins` are simulated. `ends[row]` is one more
        than the number of the last instruction of the log record in row `row`.
        """
        self._last |= {thread: int(ends[row]) - 1 for thread, row in self._last_row.items()}
        self._given |= {place: (self._given[place][0], int(ends[row]) - 1) for place, row in self._given_row.items()}

    def _waits_for(self, record: np.void, current: int) -> int:
        """Returns the thread that a log record had to wait for, or -1 if the record did not wait. Call this method only
        if the previous record is on another thread.
        """
        new = current not in self._known
        self._known.add(current)
        if new and _begins_a_collective(record):
            self._of_groups.add(current)
        before = self._turn
        if current in self._of_groups or (_is_apart(record) and before >= 0 and current not in self._waiting):
            return before if new else -1
        self._turn = current
        if before in (-1, current):
            return -1
        if current and _runs_no_python(record):
            self._serving.add(current)
        if current in self._serving:
            if before not in self._serving:
                self._waiting[before] = current
            return before
        served_by = self._waiting.pop(current, -1)
        return before if new else served_by

    def _collectives(self, records: np.ndarray) -> list[Join]:
        """Returns a join for each collective that a thread of a process group (for example of gloo) runs. The thread
        waits for the caller of the collective. The caller first makes a stream wait for the tensors. The thread that
        runs the collective begins with a wait for this stream.
        """
        found: list[Join] = []
        self._given_row = {}
        chosen_rows = records["code"] == LogCode.EVENT_WAIT
        if self._of_groups:
            chosen_rows |= np.isin(records["thread"], list(self._of_groups)) & _OF_COLLECTIVES[records["code"]]
        rows = np.flatnonzero(chosen_rows)
        if not len(rows):  # the usual case; a program with many queries has many small batches
            return found
        began: dict[int, int] = {}
        columns = (rows, *(records[name][rows] for name in ("code", "thread", "device", "stream")))
        for row, kind, thread, device, stream in zip(*(column.tolist() for column in columns), strict=True):
            place = device, stream
            if kind == LogCode.EVENT_WAIT:
                self._given[place], self._given_row[place] = (thread, -1), row
            elif kind == LogCode.MARK_BEGIN:
                began[thread] = row
            elif place in self._given:
                giver, instruction = self._given[place]
                found.append(Join(began.pop(thread, row), giver, self._given_row.get(place, -1), instruction))
        return found


class EventHandOvers:
    """Remembers which thread last recorded each event."""

    def __init__(self) -> None:
        self._thread: dict[int, int] = {}

    def joins(self, records: np.ndarray, event: I64, recorded: Mapping[int, int]) -> list[Join]:
        """Returns a join for each log record that waits for an event of another thread.

        Args:
            records: The next records of the log.
            event: The event of each record, or 0 if the record has no event.
            recorded: The instruction that last recorded each event before these records.
        """
        found: list[Join] = []
        here: dict[int, int] = {}
        rows = np.flatnonzero(event)
        columns = (rows, event[rows], records["thread"][rows], records["code"][rows])
        for row, number, thread, code in zip(*(column.tolist() for column in columns), strict=True):
            if code == LogCode.EVENT_RECORD:
                self._thread[number], here[number] = thread, row
            elif self._thread.get(number, thread) != thread and (number in here or number in recorded):
                found.append(Join(row, self._thread[number], here.get(number, -1), recorded.get(number, -1)))
        return found

    def to(self, thread: int, event: int) -> bool:
        """Returns whether the event was last recorded by a thread other than `thread`."""
        return self._thread.get(event, thread) != thread

    def forget(self, events: Iterable[int]) -> None:
        for event in events:
            self._thread.pop(event, None)


def _begins_a_collective(record: np.void) -> bool:
    """Returns whether the log record is the annotation with which a thread of a process group begins a collective. All
    other annotations come from Python.
    """
    return bool(record["stack"] == NO_PYTHON and record["code"] == LogCode.MARK_BEGIN)


def _is_apart(record: np.void) -> bool:
    """Returns whether the log record is a sleep or a read of the clock. A thread that sleeps, for example to redraw a
    progress bar, or that times itself, does not wake other threads.
    """
    return bool(_APART[record["code"]])


def _runs_no_python(record: np.void) -> bool:
    """Returns whether the log record is on an autograd thread. Such a record has no Python stack, or it begins an
    operator and has the number of the forward thread.
    """
    return bool(record["stack"] == NO_PYTHON or (record["code"] == LogCode.OP_BEGIN and record["b"] >= 0))
