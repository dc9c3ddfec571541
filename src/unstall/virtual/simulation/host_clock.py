"""Computes the host's work before each record: modelled for the GPU's host, or measured on this host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import LogCode, Stack


class HostClock(Protocol):
    """Computes the host's work before each record."""

    def know(self, stacks: Sequence[Stack]) -> None:
        """Adds the log's next stacks. Stacks are numbered in the order in which they are added."""

    def work(self, records: np.ndarray, usual: I64, woken: Bool) -> I64:
        """Returns, for each record, the ns of host work since the previous record of its thread. If `woken` is True for
        a record, its work begins at the previous record of any thread, because that record woke this thread. `usual` is
        the cost of the record itself. Records must come in order.
        """


class ModelledHost:
    """Computes host work from the costs alone, so a program always takes the same time. Charges for records and for
    Python code between two records of a thread. Operators that the thread did not call recently cost extra, because
    their code has left the CPU caches.
    """

    def __init__(self, costs: HostCosts) -> None:
        self._costs = costs
        self._stacks: list[Stack] = []
        self._between: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._lately = Lately(costs.warm_records)
        self._depth: dict[int, int] = {}  # by thread: the number of open operators

    def know(self, stacks: Sequence[Stack]) -> None:
        self._stacks += stacks

    def work(self, records: np.ndarray, usual: I64, woken: Bool) -> I64:
        begins = records["code"] == LogCode.OP_BEGIN
        work: I64 = np.where(begins & self._nested(records), usual + self._costs.nested - self._costs.operator, usual)
        work[begins & ~self._lately.did(records)] += self._costs.cold
        stack = records["stack"].astype(np.int64)
        before = _previous(records["thread"], stack, self._last, -1)
        moved = np.flatnonzero((stack != before) & (stack >= 0) & (before >= -1))
        if not len(moved):
            return work
        pairs, which = np.unique((before[moved] + 1) << 32 | stack[moved], return_inverse=True)
        cost = np.array([self._moved(pair) for pair in pairs.tolist()], np.int64)
        work[moved] += cost[which]
        return work

    def _nested(self, records: np.ndarray) -> Bool:
        """Returns, for each record, whether it is inside an operator of its thread."""
        code, thread = records["code"], records["thread"]
        step = (code == LogCode.OP_BEGIN).astype(np.int64) - (code == LogCode.OP_END)
        result = np.zeros(len(records), np.bool_)
        for number in np.unique(thread).tolist():
            mine = np.flatnonzero(thread == number)
            depth = self._depth.get(number, 0) + np.cumsum(step[mine])
            result[mine] = depth - step[mine] > 0
            self._depth[number] = max(int(depth[-1]), 0)
        return result

    def _moved(self, pair: int) -> int:
        found = self._between.get(pair)
        if found is None:
            before, after = (pair >> 32) - 1, pair & 0xFFFFFFFF
            entered, units = passed(self._stacks[before] if before >= 0 else (), self._stacks[after])
            found = self._between[pair] = entered * self._costs.frame + units * self._costs.bytecode
        return found


def passed(before: Stack, after: Stack) -> tuple[int, int]:
    """Returns the Python code executed between two stacks: (frames entered, two-byte units of bytecode).

    Counts bytecode from the start of each entered frame, and from the old position in the innermost frame that both
    stacks share. Includes code that was jumped over.
    """
    common = 0
    for (code, offset), (other, other_offset) in zip(reversed(before), reversed(after), strict=False):
        if code is not other:
            break
        common += 1
        if offset != other_offset:
            break
    entered = after[: len(after) - common]
    units = sum(max(offset, 0) for _, offset in entered)
    if common:
        units += abs(after[len(after) - common][1] - before[len(before) - common][1])
    return len(entered), units // 2


class Lately:
    """Finds, for each record, whether its thread wrote a record with the same code and operator within its last
    `within` records. Records must come in log order.
    """

    def __init__(self, within: int) -> None:
        self._within = within
        self._done: dict[int, int] = {}  # by thread: the number of its records
        self._last: dict[int, int] = {}  # by thread and kind of record: the last time, in records

    def did(self, records: np.ndarray) -> Bool:
        thread = records["thread"].astype(np.int64)
        what = thread << 40 | records["code"].astype(np.int64) << 34 | (records["id"].astype(np.int64) + 1)
        place = np.zeros(len(records), np.int64)
        for number in np.unique(thread).tolist():
            mine = np.flatnonzero(thread == number)
            first = self._done.get(number, 0)
            place[mine] = first + np.arange(len(mine))
            self._done[number] = first + len(mine)
        order = np.lexsort((place, what))
        known, start = np.unique(what[order], return_index=True)
        before = np.append(0, place[order][:-1])
        before[start] = [self._last.get(key, -self._within - 1) for key in known.tolist()]
        ends = np.append(start[1:], len(order)) - 1
        self._last.update(zip(known.tolist(), place[order][ends].tolist(), strict=True))
        result = np.empty(len(records), np.bool_)
        result[order] = place[order] - before <= self._within
        return result


class MeasuredHost:
    """Uses the measured time on this host, without the time that was spent computing tensor values."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale
        self._last: dict[int, int] = {}
        self._end = 0

    def know(self, stacks: Sequence[Stack]) -> None:
        return

    def work(self, records: np.ndarray, usual: I64, woken: Bool) -> I64:
        now = records["host_ns"].astype(np.int64)
        before = _previous(records["thread"], now, self._last, -1)
        in_log = np.append(self._end or now[0], now[:-1]) if len(now) else now
        before = np.where(woken | (before < 0), in_log, before)
        self._end = int(now[-1]) if len(now) else self._end
        slept = np.where(records["code"] == LogCode.ADVANCE, records["a"], 0)
        passed = np.maximum(now - before - records["computing_ns"] - slept, 0)
        work: I64 = np.rint(passed * self._scale).astype(np.int64) + slept
        return work


def _previous(thread: np.ndarray, values: I64, last: dict[int, int], none: int) -> I64:
    """Returns, for each record, the value of the previous record of its thread. `last` has each thread's value before
    these records, and is updated.
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
