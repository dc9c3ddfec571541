"""The host clock that uses modelled costs alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstall.timeline.columns import I64, Bool
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import NO_PYTHON, OF_MOMENTS, LogCode, Stack, Within, chosen
from unstall.virtual.simulation.aside import Aside
from unstall.virtual.simulation.bytecode_paths import units_between
from unstall.virtual.simulation.free_work import FreeWork
from unstall.virtual.simulation.host_clock import Moment, by_thread, previous
from unstall.virtual.simulation.lately import Lately
from unstall.virtual.simulation.measured_host import MeasuredHost

F64: TypeAlias = NDArray[np.float64]
_UNKNOWN = -1  # instead of the number of a stack, or of other operators
_NOTED_NS = 100_000
"""How much longer work must really take than the model says, in ns, for the report to mention it.
Smaller differences are noise.
"""
_MAIN_THREAD = 0
_WITH_THEIR_PYTHON = chosen(LogCode.CALL) | OF_MOMENTS
"""The kinds of records whose cost, which may be 0, has that of the Python code before them."""
_MOST_NODES = 2
"""The most nodes that autograd records for one operator. An operator in place on a view has two."""


class ModelledHost:
    """A host clock that uses only modelled costs, so that a program takes the same time in every
    run.

    It charges for what the records of the shim's log stand for, for the Python code that ran between
    two records of a thread, and for what autograd records. Python code costs the more, the more other code ran between
    the operator that its thread began last and the same operator before: the CPU's caches then hold less of what it
    needs. Freeing a tensor that another thread has made costs extra, for the same reason.

    Other work, such as loops, NumPy and other libraries, costs nothing. `free` has the real time that
    such work took on the main thread, and on other threads while the main thread joined them.
    """

    scale = 1.0

    def __init__(self, costs: HostCosts) -> None:
        self.free = FreeWork()
        self._records = 0
        self._costs = costs
        self._real = MeasuredHost()
        self._stacks: list[Stack] = []
        self._between: dict[int, tuple[list[int], int]] = {}
        self._functions: dict[int, int] = {}  # their numbers, by `id` of their code, which the stacks keep
        self._last: dict[int, int] = {}
        self._lately = Lately(costs.cold_others)
        self._others: dict[int, int] = {}  # by thread: what `Lately` said of the operator that it began last
        self._depth: dict[int, int] = {}  # by thread: the number of open operators
        self._nodes: dict[int, int] = {}  # by thread: the number of nodes that autograd has recorded
        self._served = 0  # how many records autograd's threads have written
        self._served_at: dict[int, int] = {}  # by thread: how many at its last record
        self._kept_nodes = 0  # how many nodes were recorded, and not run since
        self._freed_nodes = 0  # how many nodes the threads of autograd have freed whose memory was not used since
        self._aside = Aside()
        self._makers: dict[int, int] = {}  # by allocation: the thread that made it

    def know(self, stacks: Sequence[Stack]) -> None:
        self._stacks += stacks

    def work(self, records: np.ndarray, usual: I64, woken: Bool, begun: Bool) -> I64:
        costs, begins = self._costs, records["code"] == LogCode.OP_BEGIN
        nested, stack = self._nested(records), records["stack"].astype(np.int64)
        of_autograd = (stack == NO_PYTHON) & (records["thread"] != _MAIN_THREAD)
        work: I64 = np.where(begins & nested, costs.nested, usual)
        work[self._freed_for_another(records) & ~of_autograd] += costs.foreign_free
        ran = begins & ~nested & of_autograd
        work[ran] += costs.node
        work[begun] += costs.engine
        nodes = self._recorded(records, begins)
        work += costs.recorded * nodes + (costs.foreign_recorded - costs.recorded) * self._from_another(nodes, ran)
        moves, before = ~_WITH_THEIR_PYTHON[records["code"]], stack.copy()
        before[moves] = previous(records["thread"][moves], stack[moves], self._last, _UNKNOWN)
        units, cold = self._ran(records, begins & ~of_autograd, before, stack)
        work += np.rint(units * self._unit_ns(cold)).astype(np.int64)
        listed = np.maximum(records["uses"] - costs.few_uses, 0)
        work += np.rint(listed * (costs.use + cold * ~of_autograd * (costs.cold_use - costs.use))).astype(np.int64)
        real = self._real.work(records, usual, woken, begun)
        served = self._served + np.cumsum(of_autograd)
        waited = served > previous(records["thread"], served, self._served_at, 0)  # for a backward pass
        self._served = int(served[-1]) if len(served) else self._served
        outside = (records["within"] == Within.NO_OPERATOR) & ~waited & ~of_autograd
        beyond = np.where(outside & (real - work > _NOTED_NS), real - work, 0)
        self._aside.wait(records, beyond)
        for row in np.flatnonzero((records["thread"] == _MAIN_THREAD) & (beyond > 0)).tolist():
            self.free.add(int(before[row]), int(stack[row]), self._records + row, int(beyond[row]))
        self._records += len(records)
        return work

    def read(self, moment: Moment) -> int:
        before = self._last.get(moment.thread, _UNKNOWN)
        self._last[moment.thread] = moment.stack
        moved = moment.stack != before and moment.stack >= 0 and before >= -1
        units = self._enter(moment.thread, (before + 1) << 32 | moment.stack) if moved else 0
        work = round(float(units * self._unit_ns(self._cold(self._others.get(moment.thread, 0)))))
        beyond = self._real.read(moment) - work
        if moment.thread == _MAIN_THREAD and beyond > _NOTED_NS:
            self.free.add(before, moment.stack, self._records, beyond)
        return work

    def leave_out(self, thread: int, ns: int) -> None:
        self._real.leave_out(thread, ns)

    def _ran(self, records: np.ndarray, begins: Bool, before: I64, stack: I64) -> tuple[I64, F64]:
        """Returns what Python code ran before each record of the shim's log: the number of its code units, and the
        share of what it needs that the CPU's caches do not hold any more, from 0 to 1. All records must be passed to
        this method in the order of the log.

        Args:
            records: The next records of the log.
            begins: For each record, whether it begins an operator; those that autograd's threads call do not count.
            before: For each record, the number of the Python stack of the record before it of the
                same thread; -1 for an unknown stack.
            stack: For each record, the number of its own Python stack; negative if it has none.
        """
        units, others = np.zeros(len(records), np.int64), np.full(len(records), _UNKNOWN, np.int64)
        moved = (stack != before) & (stack >= 0) & (before >= -1)
        pairs, thread, operator = (before + 1) << 32 | stack, records["thread"], records["id"]
        for row in np.flatnonzero(moved | begins).tolist():
            if moved[row]:
                units[row] = self._enter(int(thread[row]), int(pairs[row]))
            if begins[row]:
                others[row] = self._lately.begin(int(thread[row]), int(operator[row]))
        for number, mine in by_thread(thread):
            known = np.append(self._others.get(number, 0), others[mine])
            latest = known[np.maximum.accumulate(np.where(known >= 0, np.arange(len(known)), 0))]
            self._others[number], others[mine] = int(latest[-1]), latest[1:]
        return units, self._cold(others)

    def _cold(self, others: I64 | int) -> F64:
        """Returns which share of what code needs the CPU's caches do not hold any more, after so many others."""
        costs = self._costs
        return np.clip((np.asarray(others) - costs.warm_others) / (costs.cold_others - costs.warm_others), 0.0, 1.0)

    def _unit_ns(self, cold: F64) -> F64:
        """Returns what a code unit costs if the CPU's caches do not hold this share of what it needs."""
        costs = self._costs
        return costs.bytecode + cold * (costs.cold_bytecode - costs.bytecode)

    def _enter(self, thread: int, pair: int) -> int:
        """Has a thread enter the functions that its second stack of a pair has, and its first has not. Returns how many
        code units ran in between.
        """
        entered, units = self._moved(pair)
        for function in entered:
            self._lately.begin(thread, ~function)
        return units

    def _nested(self, records: np.ndarray) -> Bool:
        """Returns, for each record of the shim's log, whether its thread is in an operator. The
        operator that the record itself begins or ends does not count.
        """
        code, thread = records["code"], records["thread"]
        step = (code == LogCode.OP_BEGIN).astype(np.int64) - (code == LogCode.OP_END)
        result = np.zeros(len(records), np.bool_)
        for number, mine in by_thread(thread):
            depth = self._depth.get(number, 0) + np.cumsum(step[mine])
            result[mine] = depth - step[mine] > 0
            self._depth[number] = max(int(depth[-1]), 0)
        return result

    def _recorded(self, records: np.ndarray, begins: Bool) -> I64:
        """Returns, for each record of the shim's log, how many nodes autograd has recorded since the
        record before it, of the same thread, that begins an operator and has a sequence number of
        autograd. It is 0 for other records, and for the first of a thread. So the node of an
        operator is charged to the next operator.

        More than `_MOST_NODES` do not count: to compute the values of a recurrent layer's gradients,
        the virtual GPU itself has autograd record a thousand.
        """
        result = np.zeros(len(records), np.int64)
        rows = np.flatnonzero(begins & (records["a"] >= 0) & (records["b"] < 0))
        thread, nodes = records["thread"][rows], records["a"][rows]
        before = previous(thread, nodes, self._nodes, _UNKNOWN)
        result[rows] = np.where(before >= 0, np.clip(nodes - before, 0, _MOST_NODES), 0)
        return result

    def _from_another(self, nodes: I64, ran: Bool) -> I64:
        """Returns, for each record of the shim's log, how many of the nodes that autograd recorded before it are in
        memory that autograd's threads have freed.

        Args:
            nodes: For each record, how many nodes were recorded before it.
            ran: For each record, whether it is of a node that a thread of autograd runs, and then frees.
        """
        result = np.zeros(len(nodes), np.int64)
        for row in np.flatnonzero((nodes > 0) | ran).tolist():
            if ran[row]:
                freed = min(self._kept_nodes, 1)  # what adds to a gradient is not recorded anew, and not freed
                self._kept_nodes -= freed
                self._freed_nodes += freed
            else:
                result[row] = min(int(nodes[row]), self._freed_nodes)
                self._freed_nodes -= int(result[row])
                self._kept_nodes += int(nodes[row])
        return result

    def _freed_for_another(self, records: np.ndarray) -> Bool:
        """Returns, for each record of the shim's log, whether it frees memory that another thread allocated."""
        result = np.zeros(len(records), np.bool_)
        rows = np.flatnonzero((records["code"] == LogCode.MALLOC) | (records["code"] == LogCode.FREE))
        columns = (rows, records["code"][rows] == LogCode.FREE, records["a"][rows], records["thread"][rows])
        for row, frees, allocation, thread in zip(*(column.tolist() for column in columns), strict=True):
            if frees:
                result[row] = self._makers.pop(allocation, thread) != thread
            else:
                self._makers[allocation] = thread
        return result

    def _moved(self, pair: int) -> tuple[list[int], int]:
        found = self._between.get(pair)
        if found is None:
            before, after = (pair >> 32) - 1, pair & 0xFFFFFFFF
            entered, units = passed(self._stacks[before] if before >= 0 else (), self._stacks[after])
            ids, known = map(id, entered), self._functions
            found = self._between[pair] = [known.setdefault(each, len(known)) for each in ids], units
        return found


def passed(before: Stack, after: Stack) -> tuple[list[CodeType], int]:
    """Returns how much Python code ran between two stacks of a thread, at least.

    Bytecode counts from the start of each new frame to the current position in it. In the innermost
    frame that both stacks have, it counts from the old position to the new one. Each time, the
    shortest path counts.

    Returns:
        `(entered, units)`. `entered` has the functions that were entered, in that order, and `units` is the number of
        code units of two bytes.
    """
    common = 0
    for (code, offset), (other, other_offset) in zip(reversed(before), reversed(after), strict=False):
        if code is not other:
            break
        common += 1
        if offset != other_offset:
            break
    entered = after[: len(after) - common]
    units = sum(units_between(code, 0, offset) for code, offset in entered)
    if common:
        code, offset = after[len(after) - common]
        units += units_between(code, before[len(before) - common][1], offset)
    return [code for code, _ in reversed(entered)], units
