"""Finds which records of the shim's log had to wait for a record of another thread.

- An autograd thread runs no Python. It runs while the thread that called `backward()` waits, and
  that thread goes on when the autograd thread has finished.
- A Python thread begins when its creator starts it. If that is unknown, it begins after all records
  that other threads wrote before its first record. From then on it runs independently. If it waits
  for an event that another thread records, it goes on once the event is recorded; if it joins
  another thread, once that has ended.
- A thread of a process group (such as gloo's) runs no Python either. For each collective, the
  caller makes a stream wait and passes it to that thread, and then that thread begins the
  collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.log import NO_PYTHON, OF_ITS_THREAD, OF_MOMENTS, LogCode, chosen
from unstall.virtual.simulation.captures import Place

_OF_COLLECTIVES = chosen(LogCode.MARK_BEGIN, LogCode.SYNC_STREAM)


@dataclass(frozen=True, slots=True)
class Join:
    """A record of the shim's log that had to wait for another thread. Rows count within the current
    batch of records.

    Attributes:
        row: The row of the record.
        thread: The thread that it waited for.
        after: The row of that thread's record for which it waited; -1 if that record is in an
            earlier batch.
        instruction: Used only if `after` is -1. The number of that thread's instruction for which
            it waited; -1 stands for the thread's last instruction before this batch.
    """

    row: int
    thread: int
    after: int
    instruction: int = -1


class HandOvers:
    """Finds which records of the shim's log had to wait for a record of another thread. It
    remembers what it needs of earlier batches of records.
    """

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._serving: set[int] = set()
        self._of_groups: set[int] = set()
        self._waiting: dict[int, int] = {}  # by caller: the serving thread that it waits for
        self._caller: dict[int, int] = {}  # by autograd thread: the thread that called `backward()` last
        self._last: dict[int, int] = {}  # last instruction of each thread
        self._latest = -1  # the thread of the last record
        self._latest_is_apart = False
        self._turn = -1  # the thread of the last record outside process groups
        self._last_row: dict[int, int] = {}
        self._given: dict[Place, tuple[int, int]] = {}  # by stream that was made to wait: (thread, instruction)
        self._given_row: dict[Place, int] = {}

    def knows(self, thread: int) -> bool:
        """Returns whether a record of `thread` was in any batch so far."""
        return thread in self._known

    def is_behind(self, thread: int) -> bool:
        """Returns whether the next record of `thread` will come after records of other threads.
        That is so in two cases: the thread is new, or it waits for a thread that runs no Python.
        """
        return thread in self._waiting or (thread > 0 and not self.knows(thread))

    def joins(self, records: np.ndarray) -> tuple[list[Join], Bool, Bool]:
        """Finds which records of the next batch had to wait for another thread.

        Args:
            records: The next records of the shim's log.

        Returns:
            `(joins, woken, begun)`. `joins` has an element for each record that had to wait. `woken` is a
            bool array with an element for each record: whether it had to wait for another thread,
            and that thread wrote the record right before it. `begun` is another: whether a backward
            pass begins there, since its caller has handed the work to autograd's thread.
        """
        thread = records["thread"]
        woken, begun = np.zeros((2, len(records)), np.bool_)
        apart = OF_ITS_THREAD[records["code"]]
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
            busy = current in self._waiting.values()
            other = self._waits_for(records[row], current)
            if current in self._serving and not busy and current in self._waiting.values():
                begun[row] = True
            if other >= 0:
                found.append(Join(row, other, self._last_row.get(other, -1)))
                woken[row] = other == before
            before = current
        self._last_row[before] = len(records) - 1
        self._latest = before
        return found + self._collectives(records), woken, begun

    def targets(self, joins: list[Join], ends: I64) -> list[int]:
        """Returns, for each element of `joins`, the number of the instruction that its record waits
        for.

        Args:
            joins: The records that wait.
            ends: For each record of the batch, the number of its last instruction plus one.
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
        """Notes the instructions of the batch that was last given to `joins`. Call this once the
        batch has its instructions.

        Args:
            ends: For each record of the batch, the number of its last instruction plus one.
        """
        self._last |= {thread: int(ends[row]) - 1 for thread, row in self._last_row.items()}
        self._given |= {place: (self._given[place][0], int(ends[row]) - 1) for place, row in self._given_row.items()}

    def _waits_for(self, record: np.void, current: int) -> int:
        """Returns the thread that a record had to wait for, or -1 if it did not wait. Call this
        only for a record right after one of another thread, or after a sleep or a read of the
        clock.

        Args:
            record: The record.
            current: The thread of the record.
        """
        new = current not in self._known
        self._known.add(current)
        if new and _begins_a_collective(record):
            self._of_groups.add(current)
        if new and record["code"] == LogCode.TAKE:
            return -1  # `MomentHandOvers` knows
        before = self._turn
        if current in self._of_groups or (_is_apart(record) and before >= 0 and current not in self._waiting):
            return before if new else -1
        self._turn = current
        if before in (-1, current):
            return -1
        if current and _runs_no_python(record):
            self._serving.add(current)
        if current in self._serving:
            return self._serves(current, before, record)
        served_by = self._waiting.pop(current, -1)
        return before if new else served_by

    def _serves(self, current: int, before: int, record: np.void) -> int:
        """Returns the thread that a record of an autograd thread had to wait for, or -1 if it did not wait.

        Args:
            current: The autograd thread.
            before: The thread of the record before it.
            record: The record.
        """
        if record["code"] == LogCode.OP_BEGIN:
            told = int(record["content"]) - 1
            self._caller.pop(current, None)  # that of an earlier backward pass
            if told not in (-1, current):
                self._caller[current] = told
        if before in self._serving:
            return before
        caller = self._caller.get(current, before)  # another than `before` if that has written its record in between
        if self._waiting.get(caller) == current:
            return -1
        self._waiting[caller] = current
        return caller

    def _collectives(self, records: np.ndarray) -> list[Join]:
        """Returns a `Join` for each collective that a thread of a process group (such as gloo's)
        begins. That thread waits for the thread that called the collective.

        The caller first makes a stream wait for the tensors. The thread of the process group then
        begins with a wait for that stream. So the stream tells which thread the caller is.
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
    """Remembers which thread last recorded each CUDA event."""

    def __init__(self) -> None:
        self._thread: dict[int, int] = {}

    def joins(self, records: np.ndarray, event: I64, recorded: Mapping[int, int]) -> list[Join]:
        """Returns a `Join` for each record of the shim's log that waits for a CUDA event that
        another thread recorded.

        Args:
            records: The next records of the log.
            event: For each record, the event that it records or waits for; 0 if it has none.
            recorded: By event, the number of the instruction that last recorded it before these
                records.
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
        """Returns whether a thread other than `thread` last recorded `event`."""
        return self._thread.get(event, thread) != thread

    def forget(self, events: Iterable[int]) -> None:
        """Forgets CUDA events that no later record refers to."""
        for event in events:
            self._thread.pop(event, None)


class MomentHandOvers:
    """Remembers the moments of threads after which others begin or go on."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, int]] = {}  # by number: (thread, instruction)
        self._rows: dict[int, int] = {}

    def joins(self, records: np.ndarray) -> list[Join]:
        """Returns a `Join` for each record of the shim's log that comes after a moment of another thread."""
        found: list[Join] = []
        self._rows = {}
        rows = np.flatnonzero(OF_MOMENTS[records["code"]])
        columns = (rows, records["a"][rows], records["thread"][rows], records["code"][rows])
        for row, number, thread, code in zip(*(column.tolist() for column in columns), strict=True):
            if code == LogCode.GIVE:
                self._given[number], self._rows[number] = (thread, -1), row
            elif number in self._given:
                giver, instruction = self._given[number]
                if giver != thread:  # else it joined a thread that it had started, and that wrote nothing
                    found.append(Join(row, giver, self._rows.get(number, -1), instruction))
        return found

    def remember(self, ends: I64) -> None:
        """Does what `HandOvers.remember` does, for the moments."""
        self._given |= {number: (self._given[number][0], int(ends[row]) - 1) for number, row in self._rows.items()}


def _begins_a_collective(record: np.void) -> bool:
    """Returns whether `record` is the annotation with which a thread of a process group begins a
    collective. It is the only annotation that comes from a thread without Python.
    """
    return bool(record["stack"] == NO_PYTHON and record["code"] == LogCode.MARK_BEGIN)


def _is_apart(record: np.void) -> bool:
    """Returns whether `record` is of its thread alone. A thread that sleeps, for example between two updates of a
    progress bar, or that reads the clock, wakes no other thread by that.
    """
    return bool(OF_ITS_THREAD[record["code"]])


def _runs_no_python(record: np.void) -> bool:
    """Returns whether `record` comes from an autograd thread. It does if it has no Python stack, or
    if it begins an operator and says which forward thread the operator belongs to.
    """
    return bool(record["stack"] == NO_PYTHON or (record["code"] == LogCode.OP_BEGIN and record["b"] >= 0))
