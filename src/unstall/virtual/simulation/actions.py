"""The recipe of each record: of a call by its costs, of an operator by its signature, of a copy by its size."""

from __future__ import annotations

from typing import Any

import numpy as np

from unstall.replay.program import Code as Do
from unstall.timeline.columns import CopyDirection, DeviceKind, HostMemory
from unstall.virtual.costs.model import Costs, Kernel, OperatorCost
from unstall.virtual.costs.signature import parse
from unstall.virtual.log import DIRECTION_BITS, Code, CopyFlag, chosen
from unstall.virtual.simulation.recipes import Call, Column, Op, Part, Recipes, Step

_DIRECTIONS = {
    0: CopyDirection.PEER_TO_PEER,
    CopyFlag.HOST_TO_DEVICE: CopyDirection.HOST_TO_DEVICE,
    CopyFlag.DEVICE_TO_HOST: CopyDirection.DEVICE_TO_HOST,
    CopyFlag.DEVICE_TO_DEVICE: CopyDirection.DEVICE_TO_DEVICE,
}
_PARTS = {
    CopyDirection.HOST_TO_DEVICE: Part.UPLOADS,
    CopyDirection.DEVICE_TO_HOST: Part.DOWNLOADS,
    CopyDirection.DEVICE_TO_DEVICE: Part.PROCESSORS,
    CopyDirection.PEER_TO_PEER: Part.NOTHING,
}
_BY_WHAT_IT_HOLDS = chosen(Code.COPY, Code.SLEEP, Code.ADVANCE, Code.PIN, Code.GRAPH_LAUNCH)
_SPIN = "void at::cuda::(anonymous namespace)::spin_kernel(long)"


class Actions:
    """Which recipe each record has; recipes are made as they are first needed."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.recipes = Recipes()
        self.operators: list[OperatorCost] = []
        """By signature."""
        self._of_signature = Column(np.int64)
        self._needs_memory = Column(np.bool_)
        self._of_code = np.zeros(max(Code) + 1, np.int64)
        self._of_code[list(Code)] = [self.recipes.add(code, self._plain(code)) for code in Code]
        host, limits = costs.host, costs.limits
        add = self.recipes.add
        self.captured = add("captured", [Step(Do.CALL, Call.CAPTURE, call=host.capture)])
        self.join = add("join", [Step(Do.JOIN)])
        self.device_malloc = add("malloc", [Step(Do.CALL, Call.MALLOC, call=host.device_malloc)])
        self.device_free = add(
            "free",
            [
                Step(Do.SYNC_DEVICE, Call.FREE, latency=limits.wake_latency),
                Step(Do.CALL, Call.REST, call=host.device_free),
            ],
        )
        self.block_record = add("block record", [Step(Do.RECORD, Call.EVENT_RECORD, call=host.event_record)])
        self.block_query = add("block query", [Step(Do.CALL, Call.EVENT_QUERY, call=host.event_query)])
        self.block_sync = add(
            "block sync",
            [Step(Do.SYNC_EVENT, Call.SYNC_EVENT, call=host.synchronize, latency=limits.wake_latency)],
        )

    def know(self, raw: tuple[Any, ...]) -> None:
        """One more signature, of the next number."""
        cost = self.costs.cost(parse(raw))
        steps = [step for kernel in cost.kernels for step in self._kernel(kernel)] or [Step(Do.CALL)]
        first = steps[0]
        steps[0] = Step(first.code, first.what, cost.host_ns, first.call, first.latency, first.ops)
        number = self.recipes.add(("signature", len(self.operators)), steps)
        self.operators.append(cost)
        self._of_signature.append(number)
        self._needs_memory.append(bool(cost.temporaries or cost.workspaces))

    @property
    def needs_memory(self) -> np.ndarray:
        """By signature: whether its operator takes memory beside its outputs'."""
        return self._needs_memory.rows

    def of(self, records: np.ndarray) -> np.ndarray:
        """By record: its recipe."""
        code = records["code"]
        result: np.ndarray = self._of_code[code]
        rows = np.flatnonzero(code == Code.LAUNCH)
        result[rows] = self._of_signature.rows[records["id"][rows]]
        for row in np.flatnonzero(_BY_WHAT_IT_HOLDS[code]).tolist():
            kind, a, flags = (int(records[name][row]) for name in ("code", "a", "flags"))
            if kind == Code.GRAPH_LAUNCH:
                result[row] = self.recipes.find(("graph", a)) or result[row]
            else:
                result[row] = self.sized(kind, a, flags)
        return result

    def sized(self, kind: int, a: int, flags: int) -> int:
        """The recipe of a record whose length is told by what it holds."""
        key = (kind, a, flags)
        found = self.recipes.find(key)
        return self.recipes.add(key, self._sized(kind, a, flags)) if found is None else found

    def _plain(self, code: Code) -> list[Step]:
        """What a record of this kind does, whatever it holds."""
        host, limits = self.costs.host, self.costs.limits
        wake = limits.wake_latency
        steps: dict[Code, Step] = {
            Code.OP_BEGIN: Step(Do.CALL, work=host.operator),
            Code.OP_END: Step(Do.CALL, work=host.operator_end),
            Code.MARK_BEGIN: Step(Do.CALL, work=host.mark),
            Code.MARK_END: Step(Do.CALL, work=host.mark),
            Code.MALLOC: Step(Do.CALL, work=host.malloc),
            Code.FREE: Step(Do.CALL, work=host.free),
            Code.EVENT_RECORD: Step(Do.RECORD, Call.EVENT_RECORD, call=host.event_record),
            Code.EVENT_WAIT: Step(Do.STREAM_WAIT, Call.EVENT_WAIT, call=host.event_wait, latency=limits.event_latency),
            Code.SYNC_EVENT: Step(Do.SYNC_EVENT, Call.SYNC_EVENT, call=host.synchronize, latency=wake),
            Code.SYNC_STREAM: Step(Do.SYNC_STREAM, Call.SYNC_STREAM, call=host.synchronize, latency=wake),
            Code.SYNC_DEVICE: Step(Do.SYNC_DEVICE, Call.SYNC_DEVICE, call=host.synchronize_device, latency=wake),
            Code.GRAPH_LAUNCH: Step(Do.CALL, Call.GRAPH_LAUNCH, call=host.graph_launch),
        }
        return [steps.get(code, Step(Do.CALL))]

    def _sized(self, kind: int, a: int, flags: int) -> list[Step]:
        host, limits = self.costs.host, self.costs.limits
        if kind == Code.COPY:
            return self._copy(a, flags)
        if kind == Code.SLEEP:
            return self._kernel(Kernel(_SPIN, round(1_000 * a / limits.sleep_cycles_per_us), fills=False))
        if kind == Code.PIN:
            return [Step(Do.CALL, Call.HOST_ALLOC, call=host.pin + a * host.pin_mib // (1 << 20))]
        return [Step(Do.CALL, work=max(a, 0))]

    def _kernel(self, kernel: Kernel) -> list[Step]:
        host, limits = self.costs.host, self.costs.limits
        if kernel.kind == DeviceKind.COPY:
            return self._copied(kernel)
        crowds = kernel.fills and kernel.duration_ns >= limits.crowding_ns
        op = Op(
            kernel.name,
            kernel.duration_ns,
            Part.PROCESSORS if crowds else Part.NOTHING,
            limits.gap,
            limits.launch_latency,
            kernel.kind,
        )
        if kernel.kind == DeviceKind.MEMSET:
            return [Step(Do.LAUNCH, Call.MEMSET, call=host.memset, ops=(op,))]
        return [Step(Do.LAUNCH, Call.LAUNCH, call=host.launch, ops=(op,))]

    def _copied(self, kernel: Kernel) -> list[Step]:
        """A copy within an operator, as its name has it; the host waits for one that comes to it."""
        direction = next(
            (direction for text, direction in _IN_NAMES.items() if text in kernel.name), CopyDirection.DEVICE_TO_DEVICE
        )
        host, limits = self.costs.host, self.costs.limits
        pinned = "Pageable" not in kernel.name
        op = self._copy_op(kernel.name, kernel.duration_ns, direction, pinned, -1)
        steps = [Step(Do.LAUNCH, Call.COPY, call=host.copy, ops=(op,))]
        if direction == CopyDirection.DEVICE_TO_HOST:
            steps.append(Step(Do.SYNC_STREAM, Call.SYNC_STREAM, call=host.synchronize, latency=limits.wake_latency))
        return steps

    def _copy(self, size_bytes: int, flags: int) -> list[Step]:
        """The driver waits where it stages the bytes; that torch waits for a copy is a record of its own."""
        host, limits = self.costs.host, self.costs.limits
        direction = _DIRECTIONS[flags & DIRECTION_BITS]
        with_host = direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
        pinned = bool(flags & (CopyFlag.PINNED | CopyFlag.VALUE))  # a value is read into a pinned buffer of torch's
        duration = self.costs.copy_ns(size_bytes, direction, pinned)
        op = self._copy_op(_name_of_copy(direction, pinned), duration, direction, pinned, size_bytes)
        steps = [Step(Do.LAUNCH, Call.COPY, call=host.copy, ops=(op,))]
        small = direction == CopyDirection.HOST_TO_DEVICE and size_bytes <= limits.staged_at_once_bytes
        if with_host and not pinned and not small:
            steps.append(Step(Do.SYNC_STREAM, Call.REST, latency=limits.wake_latency))
        return steps

    def _copy_op(self, name: str, duration: int, direction: CopyDirection, pinned: bool, size_bytes: int) -> Op:
        limits = self.costs.limits
        with_host = direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
        memory = HostMemory.PINNED if pinned else HostMemory.PAGEABLE
        part = _PARTS[direction]
        if part == Part.PROCESSORS and duration < limits.crowding_ns:
            part = Part.NOTHING
        return Op(
            name,
            duration,
            part,
            limits.gap,
            limits.copy_latency,
            DeviceKind.COPY,
            direction,
            memory if with_host else HostMemory.UNKNOWN,
            size_bytes,
        )


_IN_NAMES = {
    "HtoD": CopyDirection.HOST_TO_DEVICE,
    "DtoH": CopyDirection.DEVICE_TO_HOST,
    "PtoP": CopyDirection.PEER_TO_PEER,
}


def _name_of_copy(direction: CopyDirection, pinned: bool) -> str:
    """As Kineto writes it."""
    host = "Pinned" if pinned else "Pageable"
    return {
        CopyDirection.HOST_TO_DEVICE: f"Memcpy HtoD ({host} -> Device)",
        CopyDirection.DEVICE_TO_HOST: f"Memcpy DtoH (Device -> {host})",
        CopyDirection.PEER_TO_PEER: "Memcpy PtoP (Device -> Device)",
    }.get(direction, "Memcpy DtoD (Device -> Device)")
