"""The host clock that uses modelled costs alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unstall.timeline.columns import I64, Bool
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import NO_PYTHON, LogCode, Stack, Within
from unstall.virtual.simulation.bytecode_paths import units_between
from unstall.virtual.simulation.free_work import FreeWork
from unstall.virtual.simulation.host_clock import Moment, by_thread, previous
from unstall.virtual.simulation.measured_host import MeasuredHost

_UNKNOWN = -1  # instead of a number of a stack
_NOTED_NS = 100_000
"""How much longer work must really take than the model says, in ns, for the report to mention it.
Smaller differences are noise.
"""
_MAIN_THREAD = 0
_MOST_NODES = 2
"""The most nodes that autograd records for one operator. An operator in place on a view has two."""


class ModelledHost:
    """A host clock that uses only modelled costs, so that a program takes the same time in every
    run.

    It charges for what the records of the shim's log stand for, for the Python code that ran between
    two records of a thread, and for what autograd records. An operator that the thread has not
    called lately costs extra, because the CPU's caches no longer hold its code, and so does freeing
    a tensor that another thread has made.

    Other work, such as loops, NumPy and other libraries, costs nothing. `free` has the real time that
    such work took on the main thread.
    """

    scale = 1.0

    def __init__(self, costs: HostCosts) -> None:
        self.free = FreeWork()
        self._records = 0
        self._costs = costs
        self._real = MeasuredHost()
        self._stacks: list[Stack] = []
        self._between: dict[int, tuple[int, int]] = {}
        self._last: dict[int, int] = {}
        self._lately = Lately(costs.cold_operators)
        self._depth: dict[int, int] = {}  # by thread: the number of open operators
        self._nodes: dict[int, int] = {}  # by thread: the number of nodes that autograd has recorded
        self._allocated: dict[int, int] = {}  # by thread: how often the operator that it began last has allocated
        self._kept_nodes = 0  # how many nodes were recorded, and not run since
        self._freed_nodes = 0  # how many nodes the threads of autograd have freed whose memory was not used since
        self._makers: dict[int, int] = {}  # by allocation: the thread that made it

    def know(self, stacks: Sequence[Stack]) -> None:
        self._stacks += stacks

    def work(self, records: np.ndarray, usual: I64, woken: Bool, begun: Bool) -> I64:
        costs, begins = self._costs, records["code"] == LogCode.OP_BEGIN
        nested, stack = self._nested(records), records["stack"].astype(np.int64)
        of_autograd = (stack == NO_PYTHON) & (records["thread"] != _MAIN_THREAD)
        work: I64 = np.where(begins & nested, usual + costs.nested - costs.operator, usual)
        others = self._lately.others(records, begins)
        cold = np.clip((others - costs.warm_operators) / (costs.cold_operators - costs.warm_operators), 0.0, 1.0)
        code_ns = np.where(nested, costs.cold_nested, costs.cold)
        work += np.rint(code_ns * cold * (begins & ~of_autograd)).astype(np.int64)
        work[self._freed_for_another(records) & ~of_autograd] += costs.foreign_free
        ran = begins & ~nested & of_autograd
        work[ran] += costs.node
        work[begun] += costs.engine
        nodes = self._recorded(records, begins)
        work += costs.recorded * nodes + (costs.foreign_recorded - costs.recorded) * self._from_another(nodes, ran)
        listed = np.maximum(records["uses"] - costs.few_uses, 0)
        work += np.rint(listed * (costs.use + cold * ~of_autograd * (costs.cold_use - costs.use))).astype(np.int64)
        work[nested & self._further_allocations(records, begins)] += costs.further_result
        before = previous(records["thread"], stack, self._last, _UNKNOWN)
        self._charge_python(work, before, stack, others)
        real = self._real.work(records, usual, woken, begun)
        outside = (records["thread"] == _MAIN_THREAD) & (records["within"] == Within.NO_OPERATOR)
        for row in np.flatnonzero(outside & (real - work > _NOTED_NS)).tolist():
            self.free.add(int(before[row]), int(stack[row]), self._records + row, int(real[row] - work[row]))
        self._records += len(records)
        return work

    def read(self, moment: Moment) -> int:
        before = self._last.get(moment.thread, _UNKNOWN)
        self._last[moment.thread] = moment.stack
        moved = moment.stack != before and moment.stack >= 0 and before >= -1
        others = self._lately.now(moment.thread)
        work = self._python_ns(*self._moved((before + 1) << 32 | moment.stack), others) if moved else 0
        beyond = self._real.read(moment) - work
        if moment.thread == _MAIN_THREAD and beyond > _NOTED_NS:
            self.free.add(before, moment.stack, self._records, beyond)
        return work

    def leave_out(self, thread: int, ns: int) -> None:
        self._real.leave_out(thread, ns)

    def _charge_python(self, work: I64, before: I64, stack: I64, others: I64) -> None:
        """Adds to `work` the cost of the Python code that ran before each record of the shim's log.

        Args:
            work: The work before each record, in ns. It is changed.
            before: For each record, the number of the Python stack of the record before it of the
                same thread; -1 for an unknown stack.
            stack: For each record, the number of its own Python stack; negative if it has none.
            others: For each record, what `Lately.others` returned.
        """
        moved = np.flatnonzero((stack != before) & (stack >= 0) & (before >= -1))
        if not len(moved):
            return
        pairs = ((before[moved] + 1) << 32 | stack[moved]).tolist()
        work[moved] += np.array(
            [self._python_ns(*self._moved(pair), of) for pair, of in zip(pairs, others[moved].tolist(), strict=True)],
            np.int64,
        )

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

    def _further_allocations(self, records: np.ndarray, begins: Bool) -> Bool:
        """Returns, for each record of the shim's log, whether it allocates memory for an operator that has allocated
        some before.
        """
        allocates = records["code"] == LogCode.MALLOC
        result = np.zeros(len(records), np.bool_)
        for number, mine in by_thread(records["thread"]):
            made = self._allocated.get(number, 0) + np.cumsum(allocates[mine])
            operator = np.cumsum(begins[mine])
            before = np.append(0, made[begins[mine]])  # at the begin of each operator
            since = made - before[operator]
            result[mine] = allocates[mine] & (since > 1)
            self._allocated[number] = int(since[-1])
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

    def _python_ns(self, entered: int, units: int, others: int) -> int:
        """Returns the cost of Python code that enters so many frames and runs so many units of bytecode. A frame costs
        less if the thread has begun few other operators: then the CPU's caches still hold what the frame needs.
        """
        costs = self._costs
        cold = min(max(others / max(costs.warm_operators, 1) - 1, 0.0), 1.0)
        return round(entered * (costs.warm_frame + cold * (costs.frame - costs.warm_frame))) + units * costs.bytecode

    def _moved(self, pair: int) -> tuple[int, int]:
        found = self._between.get(pair)
        if found is None:
            before, after = (pair >> 32) - 1, pair & 0xFFFFFFFF
            found = self._between[pair] = passed(self._stacks[before] if before >= 0 else (), self._stacks[after])
        return found


def passed(before: Stack, after: Stack) -> tuple[int, int]:
    """Returns how much Python code ran between two stacks of a thread, at least.

    Bytecode counts from the start of each new frame to the current position in it. In the innermost
    frame that both stacks have, it counts from the old position to the new one. Each time, the
    shortest path counts.

    Returns:
        `(entered, units)`. `entered` is the number of frames that were entered, and `units` the
        number of code units of two bytes.
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
    return len(entered), units


class Lately:
    """Tells how many different other operators a thread has begun since it began one: the more, the less of its code is
    in the CPU's caches.

    Args:
        most: More than so many are not told apart.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[int, list[int]] = {}  # by thread: operators, the one begun last is last
        self._others: dict[int, int] = {}  # by thread: of the operator that it began last

    def now(self, thread: int) -> int:
        """Returns how many others the thread had begun when it began its last operator."""
        return self._others.get(thread, 0)

    def others(self, records: np.ndarray, begins: Bool) -> I64:
        """Returns, for each record of the shim's log, how many other operators its thread had begun since it last began
        the operator that it began last before the record, or at it. All records must be passed to this method in the
        order of the log.

        Args:
            records: The next records of the log.
            begins: For each record, whether it begins an operator.
        """
        result = np.zeros(len(records), np.int64)
        for number, mine in by_thread(records["thread"]):
            rows = mine[begins[mine]]
            begun = self._begun.setdefault(number, [])
            found = [self.now(number)]
            for operator in records["id"][rows].tolist():
                others = self._most
                if operator in begun:
                    others = len(begun) - 1 - begun.index(operator)
                    begun.remove(operator)
                elif len(begun) == self._most:
                    del begun[0]
                begun.append(operator)
                found.append(others)
            self._others[number] = found[-1]
            result[mine] = np.array(found)[np.cumsum(begins[mine])]
        return result
