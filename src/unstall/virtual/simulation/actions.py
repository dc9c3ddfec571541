"""Finds the recipe of each record of the shim's log: the host instructions to simulate, and the
device ops that they launch. It depends on the kind of the record, the signature of an operator, or
the size of a copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from unstall.replay.program import WHOLE
from unstall.replay.program import Code as Do
from unstall.timeline.columns import CopyDirection, DeviceKind, HostMemory
from unstall.virtual.costs.families.convolutions import OPERATORS as CONVOLUTIONS
from unstall.virtual.costs.host_operators import begin_ns
from unstall.virtual.costs.model import Costs, Kernel, OperatorCost
from unstall.virtual.costs.signature import Signature, parse
from unstall.virtual.log import (
    CPU_PREFIX,
    DIRECTION_BITS,
    NVTX,
    TIMED,
    CopyFlag,
    LogCode,
    RawSignature,
    TorchCall,
    chosen,
)
from unstall.virtual.simulation.collectives import Collective
from unstall.virtual.simulation.recipes import Column, EnginePart, Op, Recipes, RecipeStep, RuntimeCall
from unstall.virtual.simulation.staging import PIECES, pieces_of

_DIRECTIONS = {
    0: CopyDirection.PEER_TO_PEER,
    CopyFlag.HOST_TO_DEVICE: CopyDirection.HOST_TO_DEVICE,
    CopyFlag.DEVICE_TO_HOST: CopyDirection.DEVICE_TO_HOST,
    CopyFlag.DEVICE_TO_DEVICE: CopyDirection.DEVICE_TO_DEVICE,
}
_PARTS = {
    CopyDirection.HOST_TO_DEVICE: EnginePart.UPLOADS,
    CopyDirection.DEVICE_TO_HOST: EnginePart.DOWNLOADS,
    CopyDirection.DEVICE_TO_DEVICE: EnginePart.PROCESSORS,
    CopyDirection.PEER_TO_PEER: EnginePart.NOTHING,
}
_BY_WHAT_IT_HOLDS = chosen(
    *(LogCode.COPY, LogCode.SLEEP, LogCode.ADVANCE, LogCode.PIN),
    *(LogCode.GRAPH_LAUNCH, LogCode.WORK, LogCode.COLLECTIVE, LogCode.CALL),
)
_MARKS = chosen(LogCode.MARK_BEGIN, LogCode.MARK_END)
_MAY_BE_SIMULATED = chosen(LogCode.COPY, LogCode.SYNC_STREAM)
_LARGE_BYTES = 1 << 28
_MOST = 1 << 60
_PAGE = 4_096
_SPIN = "void at::cuda::(anonymous namespace)::spin_kernel(long)"


class Actions:
    """Finds the recipe of each record of the shim's log: the host instructions to simulate, and the
    device ops that they launch. It makes a recipe when it is first needed. Each recipe has a
    number.

    Attributes:
        costs: The costs of operators, copies and calls on the modelled GPU and its host.
        recipes: All recipes that were made so far.
        launches_block: Whether each launch waits until its work is done, as with
            CUDA_LAUNCH_BLOCKING=1. It must be set before the first launch.
        operators: For each signature of an operator in the log, what the call costs on the device.
            An operator on the CPU has an empty cost.
        names: For each signature of an operator in the log, the name of the operator without its
            namespace.
        shapes: For each signature of an operator in the log, the name of the operator and the shapes of its
            arguments as JSON.
        guessed: By name, the operators whose cost could not be computed, with the reason. The
            simulation guesses their costs.
        collectives: The collectives in which this rank took part, in the order of their calls.
        job: This process's rank in its job, and the number of ranks. None if the process belongs to
            no job over NCCL.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.recipes = Recipes()
        self.launches_block = False
        self.operators: list[OperatorCost] = []
        self.names: list[str] = []
        self.shapes: list[tuple[str, str]] = []
        self.guessed: dict[str, str] = {}
        self.collectives: list[Collective] = []
        self.job: tuple[int, int] | None = None
        self._on_host: dict[int, Signature] = {}
        self._of_signature = Column(np.int64)
        self._of_operator = Column(np.int64)
        self._needs_memory = Column(np.bool_)
        self._is_convolution = Column(np.bool_)
        self._convolves_in: set[str] = set()  # the precisions of convolutions of float32
        self._of_code = np.zeros(max(LogCode) + 1, np.int64)
        self._of_code[list(LogCode)] = [self.add(code, self._plain(code)) for code in LogCode]
        host, limits = costs.host, costs.limits
        add = self.add
        self.captured = add("captured", [RecipeStep(Do.CALL, RuntimeCall.CAPTURE, call=host.capture)])
        self.join = add("join", [RecipeStep(Do.JOIN)])
        self._simulated = add("simulated", [RecipeStep(Do.CALL)])
        self._nvtx = add("nvtx", [RecipeStep(Do.CALL, work=host.nvtx)])
        timed = replace(self._plain(LogCode.EVENT_RECORD)[0], latency=limits.timed_event)
        self._timed = add("timed event", [timed])
        self.device_malloc = add("malloc", [RecipeStep(Do.CALL, RuntimeCall.MALLOC, call=host.device_malloc)])
        self.device_free = add(
            "free",
            [
                RecipeStep(Do.SYNC_DEVICE, RuntimeCall.FREE, latency=limits.wake_latency),
                RecipeStep(Do.CALL, RuntimeCall.REST, call=host.device_free),
            ],
        )
        self.block_record = add(
            "block record", [RecipeStep(Do.RECORD, RuntimeCall.EVENT_RECORD, call=host.event_record)]
        )
        self.block_query = add("block query", [RecipeStep(Do.CALL, RuntimeCall.EVENT_QUERY, call=host.event_query)])
        self.first_staging_sync, self.staging_sync = (
            add(("staging sync", call), [RecipeStep(Do.SYNC_EVENT, call, latency=limits.wake_latency)])
            for call in (RuntimeCall.COPY, RuntimeCall.REST)
        )
        self.block_sync = add(
            "block sync",
            [RecipeStep(Do.SYNC_EVENT, RuntimeCall.SYNC_EVENT, call=host.synchronize, latency=limits.wake_latency)],
        )

    def add(self, key: Hashable, steps: Sequence[RecipeStep]) -> int:
        """Adds a recipe (host instructions with the device ops that they launch), and returns its
        number. If `launches_block` is True, each launch in it is followed by a wait until the
        stream has no work left.

        Args:
            key: What the recipe can be found by.
            steps: The host instructions, in order.
        """
        if self.launches_block:
            waits = RecipeStep(Do.SYNC_STREAM, RuntimeCall.REST, latency=self.costs.limits.wake_latency)
            steps = [each for step in steps for each in ([step, waits] if step.code == Do.LAUNCH else [step])]
        return self.recipes.add(key, steps)

    def know(self, raw: RawSignature) -> None:
        """Adds the next signature of an operator in the shim's log, with its cost and the recipe of
        its launch (the host instructions and device ops to simulate). Signatures are numbered in
        the order in which they are added.
        """
        on_host = raw[0].startswith(CPU_PREFIX)
        signature = parse((raw[0].removeprefix(CPU_PREFIX), *raw[1:]))
        if on_host:
            self._on_host[len(self.operators)] = signature
        cost = OperatorCost(()) if on_host else self._cost(signature)
        self.names.append(signature.name.removeprefix("aten::"))
        self.shapes.append((signature.name, signature.shapes))
        number = self.add(("signature", len(self.operators)), self._launched(cost))
        self.operators.append(cost)
        self._of_signature.append(number)
        self._needs_memory.append(bool(cost.temporaries or cost.workspaces))
        convolves = signature.name in CONVOLUTIONS and not on_host
        self._is_convolution.append(convolves)
        if convolves and any(tensor.dtype == "float32" for tensor in signature.tensors):
            self._convolves_in.add(signature.precision)

    def know_operator(self, name: str) -> None:
        """Adds the next name of an operator or annotation in the shim's log, with the recipe of the begin of such an
        operator. Names are numbered in the order in which they are added.
        """
        ns = begin_ns(name, self.costs.host)
        key = ("begin", ns)
        found = self.recipes.find(key)
        step = RecipeStep(Do.CALL, work=ns)
        self._of_operator.append(self.add(key, [step]) if found is None else found)

    def collective(self, collective: Collective) -> int:
        """Adds a collective with the recipe of its kernel (the host instruction and device op to
        simulate), and returns the number of the collective.

        The kernel begins as soon as this rank is ready, without the delay of a launch: the time at
        which the rank is ready already includes that delay.
        """
        number = len(self.collectives)
        self.collectives.append(collective)
        duration = collective.end_ns(self.costs) - collective.meeting.ready
        latency = self.costs.limits.launch_latency
        kernel = Op(collective.kernel(self.costs), duration, EnginePart.NOTHING, 0, latency)
        self.add((int(LogCode.COLLECTIVE), number), [RecipeStep(Do.LAUNCH, RuntimeCall.REST, ops=(kernel,))])
        return number

    def graph_is_empty(self, graph: int) -> bool:
        """Returns whether the capture of a CUDA graph has ended without a device op. `graph` is the number of the graph
        in the shim's log.
        """
        recipe = self.recipes.find(("graph", graph))
        return recipe is not None and not self.recipes.ops_of(recipe)

    def instead(self, signature: int, ran: OperatorCost | None) -> int:
        """Returns the number of the recipe (what is simulated) of an operator that needs more
        memory than the device has left.

        Args:
            signature: The number of the operator's signature in the shim's log.
            ran: The cost of what the operator runs with less memory; None if the operator fails and
                launches nothing.
        """
        key = ("instead", signature, ran is None)
        found = self.recipes.find(key)
        if found is None:
            failed = OperatorCost((), self.operators[signature].host_ns)
            found = self.add(key, self._launched(ran or failed))
        return found

    def _launched(self, cost: OperatorCost) -> list[RecipeStep]:
        host, temporaries = self.costs.host, sum(map(len, cost.temporaries))
        steps = [step for kernel in cost.kernels for step in self._kernel(kernel)] or [RecipeStep(Do.CALL)]
        before = cost.host_ns + temporaries * (host.malloc + host.free)
        return [replace(steps[0], work=steps[0].work + before), *steps[1:]]

    def _cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call of an operator. If it cannot be computed for whatever reason,
        returns a guess, because an unexpected call must not end the simulation.
        """
        try:
            cost = self.costs.cost(signature)
            _check(cost)
        except Exception as error:  # whatever goes wrong
            self.guessed.setdefault(signature.name, f"{type(error).__name__}: {error}")
            return self.costs.guess(signature)
        return cost

    @property
    def needs_memory(self) -> np.ndarray:
        """For each signature of an operator: whether the operator allocates more memory than that
        of its outputs. A bool array.
        """
        return self._needs_memory.rows

    @property
    def is_convolution(self) -> np.ndarray:
        """For each signature of an operator: whether it is a convolution on a device. A bool array."""
        return self._is_convolution.rows

    @property
    def tf32_convolutions(self) -> bool:
        """Whether there were convolutions of float32, and torch's settings let all of them multiply in TF32."""
        return bool(self._convolves_in) and "ieee" not in self._convolves_in

    def of(self, records: np.ndarray) -> np.ndarray:
        """Returns the number of the recipe (what is simulated) of each record, as an int64 array.
        `records` are records of the shim's log, an array of `log.RECORD`.
        """
        code = records["code"]
        result: np.ndarray = self._of_code[code]
        rows = np.flatnonzero(code == LogCode.LAUNCH)
        result[rows] = self._of_signature.rows[records["id"][rows]]
        begins = np.flatnonzero((code == LogCode.OP_BEGIN) & (records["id"] >= 0))
        result[begins] = self._of_operator.rows[records["id"][begins]]
        for row in np.flatnonzero(_BY_WHAT_IT_HOLDS[code]).tolist():
            kind, a, flags = (int(records[name][row]) for name in ("code", "a", "flags"))
            if kind == LogCode.GRAPH_LAUNCH:
                result[row] = self.recipes.find(("graph", a)) or result[row]
            elif kind == LogCode.WORK:
                result[row] = self.sized(kind, a, int(records["id"][row]))
            elif kind == LogCode.COLLECTIVE:
                result[row] = self.recipes.find((kind, a)) or result[row]
            else:
                result[row] = self.sized(kind, a, flags)
        result[_MARKS[code] & (records["flags"] & NVTX > 0)] = self._nvtx
        result[(code == LogCode.EVENT_RECORD) & (records["flags"] & TIMED > 0)] = self._timed
        result[_MAY_BE_SIMULATED[code] & (records["flags"] & CopyFlag.SIMULATED > 0)] = self._simulated
        return result

    def call(self, what: RuntimeCall, ns: int) -> int:
        """Returns the number of the recipe (what is simulated) of a call of the CUDA runtime that
        takes `ns` and does nothing else.
        """
        key = ("call", what, ns)
        found = self.recipes.find(key)
        return self.recipes.add(key, [RecipeStep(Do.CALL, what, call=ns)]) if found is None else found

    def sized(self, kind: int, a: int, more: int) -> int:
        """Returns the number of the recipe (what is simulated) of a record whose duration depends
        on more than its kind.

        Args:
            kind: The kind of record, a `LogCode`.
            a: The field `a` of the record: for a copy, the number of bytes. `LogCode` says what it
                is for other kinds.
            more: For a WORK, the number of the operator's signature. For others, the record's flags.
        """
        key = (kind, a, more)
        found = self.recipes.find(key)
        return self.add(key, self._sized(kind, a, more)) if found is None else found

    def rest_of_copy(self, size_bytes: int, flags: int) -> int:
        """Returns the number of the recipe (what is simulated) of a copy whose call began with
        waits until the driver's buffers were free. The waits have a recipe of their own; this one
        is the rest of the call.

        Args:
            size_bytes: The size of the copy.
            flags: The flags of its record, a `CopyFlag`.
        """
        key = ("rest", size_bytes, flags)
        found = self.recipes.find(key)
        if found is not None:
            return found
        first, *others = self._copy(size_bytes, flags)
        return self.add(key, [replace(first, what=RuntimeCall.REST), *others])

    def _plain(self, code: LogCode) -> list[RecipeStep]:
        """Returns the host instructions for a record whose duration depends only on its kind."""
        host, limits = self.costs.host, self.costs.limits
        wake = limits.wake_latency
        steps: dict[LogCode, RecipeStep] = {
            LogCode.OP_BEGIN: RecipeStep(Do.CALL, work=host.operator),
            LogCode.OP_END: RecipeStep(Do.CALL, work=host.operator_end),
            LogCode.MARK_BEGIN: RecipeStep(Do.CALL, work=host.mark),
            LogCode.MARK_END: RecipeStep(Do.CALL, work=host.mark),
            LogCode.MALLOC: RecipeStep(Do.CALL, work=host.malloc),
            LogCode.FREE: RecipeStep(Do.CALL, work=host.free),
            LogCode.EVENT_RECORD: RecipeStep(Do.RECORD, RuntimeCall.EVENT_RECORD, call=host.event_record),
            LogCode.EVENT_WAIT: RecipeStep(
                Do.STREAM_WAIT, RuntimeCall.EVENT_WAIT, call=host.event_wait, latency=limits.event_latency
            ),
            LogCode.SYNC_EVENT: RecipeStep(Do.SYNC_EVENT, RuntimeCall.SYNC_EVENT, call=host.synchronize, latency=wake),
            LogCode.SYNC_STREAM: RecipeStep(
                Do.SYNC_STREAM, RuntimeCall.SYNC_STREAM, call=host.synchronize, latency=wake
            ),
            LogCode.SYNC_DEVICE: RecipeStep(
                Do.SYNC_DEVICE, RuntimeCall.SYNC_DEVICE, call=host.synchronize_device, latency=wake
            ),
            LogCode.GRAPH_LAUNCH: RecipeStep(Do.CALL, RuntimeCall.GRAPH_LAUNCH, call=host.graph_launch),
            LogCode.CLOCK: RecipeStep(Do.CALL, work=host.clock_read),
            LogCode.NOTICE: RecipeStep(Do.CALL, RuntimeCall.LAST_ERROR),
            LogCode.COLLECTIVE_CALL: RecipeStep(Do.LAUNCH, RuntimeCall.LAUNCH, call=host.launch),
        }
        return [steps.get(code, RecipeStep(Do.CALL))]

    def _sized(self, kind: int, a: int, more: int) -> list[RecipeStep]:
        host, limits = self.costs.host, self.costs.limits
        if kind == LogCode.COPY:
            return self._copy(a, more)
        if kind == LogCode.WORK:
            return [RecipeStep(Do.CALL, work=self.costs.host_work_ns(self._on_host[more], a))]
        if kind == LogCode.CALL:
            ns: int = getattr(host, TorchCall(more).name.lower())
            return [RecipeStep(Do.CALL, work=a * ns)]
        if kind == LogCode.SLEEP:
            return self._kernel(Kernel(_SPIN, round(1_000 * a / limits.sleep_cycles_per_us), share=1))
        if kind == LogCode.PIN:
            return [RecipeStep(Do.CALL, RuntimeCall.HOST_ALLOC, call=host.pin + -(-a // _PAGE) * host.pin_page)]
        return [RecipeStep(Do.CALL, work=max(a, 0))]

    def _kernel(self, kernel: Kernel) -> list[RecipeStep]:
        host, limits = self.costs.host, self.costs.limits
        if kernel.is_wait:
            return [self._waiting()]
        if kernel.kind == DeviceKind.COPY:
            return self._copied(kernel)
        op = Op(
            kernel.name,
            kernel.duration_ns,
            EnginePart.PROCESSORS,
            limits.gap,
            limits.launch_latency,
            kernel.kind,
            share=kernel.share,
            blocks=kernel.blocks,
            size=kernel.size,
            cached=kernel.cached,
            uncached=kernel.uncached_ns,
            again=max(round(kernel.duration_ns * kernel.again / WHOLE), 1) if kernel.again != WHOLE else 0,
        )
        if kernel.kind == DeviceKind.MEMSET:
            return [RecipeStep(Do.LAUNCH, RuntimeCall.MEMSET, work=kernel.host_ns, call=host.memset, ops=(op,))]
        return [RecipeStep(Do.LAUNCH, RuntimeCall.LAUNCH, work=kernel.host_ns, call=host.launch, ops=(op,))]

    def _copied(self, kernel: Kernel) -> list[RecipeStep]:
        """Returns the host instructions for a copy that an operator makes. The direction is found
        from the name of `kernel`. If the copy is from or to the host, the host waits for it.
        """
        direction = next(
            (direction for text, direction in _IN_NAMES.items() if text in kernel.name), CopyDirection.DEVICE_TO_DEVICE
        )
        pinned = "Pageable" not in kernel.name
        op = self._copy_op(kernel.name, kernel.duration_ns, direction, pinned, -1)
        steps = [RecipeStep(Do.LAUNCH, RuntimeCall.COPY, call=self.costs.host.copy, ops=(op,))]
        if direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST):
            steps.append(self._waiting())
        return steps

    def _waiting(self) -> RecipeStep:
        call, latency = self.costs.host.synchronize, self.costs.limits.wake_latency
        return RecipeStep(Do.SYNC_STREAM, RuntimeCall.SYNC_STREAM, call=call, latency=latency)

    def _copy(self, size_bytes: int, flags: int) -> list[RecipeStep]:
        """Returns the host instructions for a copy.

        From or to pageable memory, the call of the copy waits until the copy is done, with two
        exceptions. A small upload never waits. An upload that fits into the driver's two buffers
        (see `staging`) waits only until they are free; `Server` inserts that wait, and the recipe
        ends with the record of an event. The device copies from these as fast as from any pinned
        memory. If torch itself waits after a copy, the log has a record of its own for that.

        Args:
            size_bytes: The number of bytes.
            flags: The flags of the record, a `CopyFlag`.
        """
        host, limits = self.costs.host, self.costs.limits
        direction = _DIRECTIONS[flags & DIRECTION_BITS]
        with_host = direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
        pinned = bool(flags & (CopyFlag.PINNED | CopyFlag.VALUE))  # torch reads a value into a pinned buffer
        up = direction == CopyDirection.HOST_TO_DEVICE
        at_once = up and size_bytes <= limits.staged_at_once_bytes
        in_pieces = up and not pinned and not at_once and pieces_of(size_bytes) <= PIECES
        duration = self.costs.copy_ns(size_bytes, direction, pinned or in_pieces)
        op = self._copy_op(_name_of_copy(direction, pinned), duration, direction, pinned, size_bytes)
        launch = RecipeStep(Do.LAUNCH, RuntimeCall.COPY, call=host.copy, ops=(op,))
        if not with_host or pinned or at_once:
            return [launch]
        if in_pieces:
            staged = round(1_000 * size_bytes / host.staged_bytes_per_us)
            return [replace(launch, call=host.copy + staged), RecipeStep(Do.RECORD, RuntimeCall.REST)]
        return [launch, RecipeStep(Do.SYNC_STREAM, RuntimeCall.REST, latency=limits.wake_latency)]

    def _copy_op(self, name: str, duration: int, direction: CopyDirection, pinned: bool, size_bytes: int) -> Op:
        limits = self.costs.limits
        with_host = direction in (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
        memory = HostMemory.PINNED if pinned else HostMemory.PAGEABLE
        part = _PARTS[direction]
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
            share=self._share_of_copy(duration, size_bytes) if part == EnginePart.PROCESSORS else 0,
        )

    def _share_of_copy(self, duration: int, size_bytes: int) -> int:
        """Returns which share of the device's memory bandwidth a copy within the device uses, in thousandths."""
        largest = self.costs.copy_ns(_LARGE_BYTES, CopyDirection.DEVICE_TO_DEVICE, False)
        ideal = largest * max(size_bytes, 0) / _LARGE_BYTES
        return 1000 if size_bytes < 0 else min(max(round(1000 * ideal / max(duration, 1)), 1), 1000)


def _check(cost: OperatorCost) -> None:
    """Raises ValueError if a time or a size of `cost` is not an int, is negative, or is 2^60 or more."""
    times = (cost.host_ns, *(kernel.duration_ns for kernel in cost.kernels))
    sizes = (*(size for each in cost.temporaries for size in each), *(size for _, size in cost.workspaces))
    if not all(isinstance(each, int) and 0 <= each < _MOST for each in (*times, *sizes)):
        raise ValueError(f"impossible times or sizes: {cost}")


_IN_NAMES = {
    "HtoD": CopyDirection.HOST_TO_DEVICE,
    "DtoH": CopyDirection.DEVICE_TO_HOST,
    "PtoP": CopyDirection.PEER_TO_PEER,
}


def _name_of_copy(direction: CopyDirection, pinned: bool) -> str:
    """Returns the name that Kineto's traces give to a copy."""
    host = "Pinned" if pinned else "Pageable"
    return {
        CopyDirection.HOST_TO_DEVICE: f"Memcpy HtoD ({host} -> Device)",
        CopyDirection.DEVICE_TO_HOST: f"Memcpy DtoH (Device -> {host})",
        CopyDirection.PEER_TO_PEER: "Memcpy PtoP (Device -> Device)",
    }.get(direction, "Memcpy DtoD (Device -> Device)")
