"""Logs by hand, as the shim would write them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.collectives import Operation, Transfer
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost, Startup
from unstall.virtual.log import CPU_PREFIX, ON_HOST, RECORD, USE, CopyFlag, LogCode, RawFault, Stack, Within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unstall.timeline.columns import CopyDirection
    from unstall.virtual.costs.signature import Signature
    from unstall.virtual.simulation.simulator import Simulator

MIB = 1 << 20


class Log:
    """A source of the log, and what writes it. Host time goes on by 1 us a record."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.texts: list[str] = []
        self.operators: list[tuple[Any, ...]] = []
        self.frames: list[Stack] = []
        self.failed: list[RawFault] = []
        self.gone_events: list[int] = []
        self.headroom: dict[int, int] = {}
        self.used: list[tuple[int, int, int]] = []  # (allocation, offset, bytes) of what the records use
        self.stack = -1
        self.thread = 0
        self.within = Within.NO_OPERATOR
        self.host_ns = 0
        self.graphs: set[int] = set()  # that were captured
        self.simulator: Simulator | None = None
        self.raised: list[Exception] = []
        self._allocations = 0

    def write(
        self,
        code: LogCode,
        a: int = 0,
        b: int = 0,
        *,
        device: int = 0,
        stream: int = 0,
        id: int = -1,
        flags: int = 0,
        computing_ns: int = 0,
        uses: Sequence[tuple[int, int, int]] = (),
        content: int = 0,
    ) -> None:
        self.host_ns += 1_000
        self.used += uses
        self.rows.append(
            (
                *(self.host_ns, computing_ns, a, b, stream, self.thread, self.stack, id, len(uses)),
                *(int(code), device, int(flags), int(self.within), content),
            )
        )

    def name(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)

    @contextmanager
    def op(
        self, name: str, sequence: int = -1, forward: int = -1, *, on_host: bool = False, content: int = 0
    ) -> Iterator[None]:
        flags = ON_HOST if on_host else 0
        self.write(LogCode.OP_BEGIN, sequence, forward, id=self.name(name), flags=flags, content=content)
        before, self.within = self.within, Within.HOST_OPERATOR if on_host else Within.DEVICE_OPERATOR
        yield
        self.write(LogCode.OP_END)
        self.within = before

    def work(self, duration_ns: int, threads: int = 0) -> None:
        """What an operator of the CPU computes, in that time."""
        raw = (f"{CPU_PREFIX}{duration_ns}", "", (), ())
        if raw not in self.operators:
            self.operators.append(raw)
        self.write(LogCode.WORK, threads, id=self.operators.index(raw))

    @contextmanager
    def mark(self, name: str) -> Iterator[None]:
        self.write(LogCode.MARK_BEGIN, id=self.name(name))
        yield
        self.write(LogCode.MARK_END)

    def launch(
        self,
        duration_ns: int,
        stream: int = 0,
        device: int = 0,
        uses: Sequence[tuple[int, int, int]] = (),
        **of: Any,
    ) -> int:
        """One kernel, which uses that memory; see `Fixed`. Returns the number of its request for memory."""
        raw = (f"{duration_ns}", repr(sorted(of.items())), (), ())
        if raw not in self.operators:
            self.operators.append(raw)
        self._allocations += 1
        operator = self.operators.index(raw)
        self.write(LogCode.LAUNCH, 0, self._allocations, id=operator, stream=stream, device=device, uses=uses)
        return self._allocations

    def malloc(self, size: int, stream: int = 0, device: int = 0) -> int:
        self._allocations += 1
        self.write(LogCode.MALLOC, self._allocations, size, stream=stream, device=device)
        return self._allocations

    def free(self, allocation: int) -> None:
        self.write(LogCode.FREE, allocation)

    def copy(self, size: int, flags: CopyFlag, stream: int = 0) -> None:
        self.write(LogCode.COPY, size, -1, flags=flags, stream=stream)
        if not flags & CopyFlag.NON_BLOCKING:
            self.write(LogCode.SYNC_STREAM, stream=stream)

    # As LogSource.

    def take(self) -> tuple[bytes, bytes, bytes]:
        taken, self.rows = self.rows, []
        used, self.used = [(*use, 0, b"") for use in self.used], []
        gone, self.gone_events = self.gone_events, []
        return np.array(taken, RECORD).tobytes(), np.array(used, USE).tobytes(), np.array(gone, np.int64).tobytes()

    def signatures(self, first: int) -> Sequence[tuple[Any, ...]]:
        return self.operators[first:]

    def names(self, first: int) -> Sequence[str]:
        return self.texts[first:]

    def faults(self, first: int) -> Sequence[RawFault]:
        return self.failed[first:]

    def stacks(self, first: int) -> Sequence[Stack]:
        return self.frames[first:]

    def unknown_reads(self) -> Sequence[int]:
        return ()

    def assumed_finds(self) -> Sequence[int]:
        return ()

    def divisions_by_zero(self) -> Sequence[int]:
        return ()

    def this_thread(self) -> int:
        return self.thread

    def now_ns(self) -> int:
        return self.host_ns

    def moment(self) -> tuple[int, int, int]:
        return self.stack, self.host_ns, 0

    def append(self, code: int, device: int = -1, stream: int = 0, a: int = 0) -> None:
        self.write(LogCode(code), a, device=device, stream=stream)

    def hold_signals(self) -> None:
        return

    def release_signals(self) -> None:
        return

    def raise_later(self, exception: Exception) -> None:
        self.raised.append(exception)

    def set_logging(self, on: bool) -> None:
        return

    def set_telling_ns(self, ns: int) -> None:
        return

    def set_headroom(self, device: int, size_bytes: int) -> None:
        self.headroom[device] = size_bytes


HOST = HostCosts(
    node=0,
    operator=1_000,
    nested=1_000,
    operator_end=100,
    bytecode=2,
    cold_bytecode=2,
    recorded=0,
    foreign_recorded=0,
    engine=0,
    use=0,
    cold_use=0,
    warm_others=1,
    cold_others=3,
    mark=500,
    malloc=200,
    free=100,
    launch=2_000,
    copy=3_000,
    memset=2_000,
    event_record=500,
    event_wait=400,
    event_query=300,
    synchronize=1_000,
    synchronize_device=1_000,
    graph_launch=5_000,
    graph_node=10,
    capture=700,
    device_malloc=50_000,
    device_free=40_000,
    pin=20_000,
    pin_page=4,
    clock_read=50,
)
LIMITS = Limits(
    queue_capacity=1022,
    gap=1_000,
    graph_gap=100,
    launch_latency=3_000,
    copy_latency=2_000,
    graph_latency=5_000,
    event_latency=1_500,
    timed_event=600,
    wake_latency=4_000,
    staged_at_once_bytes=64 << 10,
    sleep_cycles_per_us=1_979.0,
)


class Fixed:
    """Costs in round figures: an operator's name is its kernel's duration, its overload what else is known of it."""

    def __init__(self, total_bytes: int = 1_000 * MIB) -> None:
        self.device = DeviceFacts("Round GPU", total_bytes, 0, 10)
        self.host = HOST
        self.limits = LIMITS
        self.startup = Startup()
        self.known_error = "exact"

    def cost(self, signature: Signature) -> OperatorCost:
        of = dict(eval(signature.overload))
        if "fallback_ns" in of:
            of["fallback"] = OperatorCost((Kernel("slower", of.pop("fallback_ns")),))
        count = of.pop("kernels", 1)
        kernel = Kernel(
            of.pop("name", "kernel"),
            int(signature.name),
            DeviceKind(of.pop("kind", DeviceKind.KERNEL)),
            share=of.pop("share", 1000 if of.pop("fills", True) else 1),
            cached=of.pop("cached", 0),
            uncached_ns=of.pop("uncached_ns", 0),
            again=of.pop("again", 1_000),
            module=of.pop("module", 0),
            host_ns=of.pop("before_each_ns", 0),
        )
        return OperatorCost((kernel,) * count, **of)

    def guess(self, signature: Signature) -> OperatorCost:
        return OperatorCost((Kernel("guessed", 7_000),))

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        return int(signature.name) // max(threads, 1)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        return size_bytes // 10 if pinned else size_bytes

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        return Transfer(size_bytes * ranks, "Ring")
