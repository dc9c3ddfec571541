"""Two dispatch modes for captures. `Tracing` finds dependencies between operators. `Forking` puts operators on several
streams.

Both modes find the storages that each operator uses (`storages.py`), and keep all tensors alive until the capture ends.
So each address belongs to only one storage, and no stream reuses memory that another stream may still read. Operators
run in the program's order, so that random operators give the same numbers as in a capture on one stream.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch._ops import OpOverload

from unstall.fix.graphs.capture.capture_device import CaptureDevice
from unstall.fix.graphs.capture.stream_plan import Plan, Traced
from unstall.fix.graphs.refusals import calling_place
from unstall.fix.tensors.storages import Touched, decomposed, touched_by
from unstall.guest.dispatch_mode import DispatchMode


class CannotFork(Exception):  # noqa: N818 - a decision, not an error
    """Raised if a capture on several streams would not be safe, or if the function runs other operators than in the
    earlier run in which its operators were recorded."""


class Dependencies:
    """Finds dependencies between operators: read after write, write after read, write after write.

    For each storage, stores the last operator that wrote to the storage, and the operators that read the storage after
    this write.
    """

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._barrier = -1
        self._count = 0

    def before(self, touched: Touched) -> tuple[int, ...]:
        """Adds an operator. Operators are added in the order in which they run. Returns the indices of the earlier
        operators that the added operator must wait for. `touched` has the storages that the added operator reads and
        writes."""
        place = self._count
        self._count += 1
        if touched.barrier:
            self._writer.clear()
            self._readers.clear()
            self._barrier = place
            return tuple(range(place))
        after: set[int] = {self._barrier} if self._barrier >= 0 else set()
        writes = set(touched.writes)
        for storage in writes.union(touched.reads):
            if storage in self._writer:
                after.add(self._writer[storage])
        for storage in writes:
            after.update(self._readers.pop(storage, ()))
            self._writer[storage] = place
        for storage in touched.reads:
            if storage not in writes:
                self._readers.setdefault(storage, []).append(place)
        after.discard(place)
        return tuple(sorted(after))

    def made(self, touched: Touched, place: int = -1) -> None:
        """Records that an operator made new storages, `touched.fresh`. `place` is the index of this operator, or -1 if
        no operator of the capture wrote to these storages."""
        for storage in touched.fresh:
            self._readers.pop(storage, None)
            if place >= 0:
                self._writer[storage] = place


class _CaptureMode(DispatchMode):
    """The base class of `Tracing` and `Forking`. Keeps tensors alive, and detects work that no torch operator
    launched."""

    def __init__(self, device: CaptureDevice) -> None:
        DispatchMode.__init__(self)
        self._device = device
        self._kept: list[object] = []
        self._nodes = device.nodes_captured()
        self._lock = threading.Lock()

    def _check_for_hidden_work(self) -> None:
        """Raises `CannotFork` if work has been launched since the last operator of torch."""
        if self._nodes is not None and self._device.nodes_captured() != self._nodes:
            raise CannotFork(f"{calling_place()}: work that no operator of torch's shows, as of a Triton kernel")

    def _count_nodes(self) -> None:
        if self._nodes is not None:
            self._nodes = self._device.nodes_captured()

    def release(self) -> None:
        """Drops the tensors that this mode kept alive during the capture. It must be called after the capture has
        ended."""
        self._kept.clear()


@dataclass(frozen=True, slots=True)
class Trace:
    """The operators of one run of a function.

    Attributes:
        names: The names of all operators, in order.
        launched: For each operator in `names`, its index in `ops`, or -1 if the operator put no work on a stream.
        ops: The operators that put work on a stream, in order.
    """

    names: tuple[str, ...]
    launched: tuple[int, ...]
    ops: tuple[Traced, ...]


class Tracing(_CaptureMode):
    """A dispatch mode for a capture on one stream. It records the dependencies between operators. If `timed` is True,
    it also measures how long each operator takes."""

    def __init__(self, device: CaptureDevice, *, timed: bool) -> None:
        super().__init__(device)
        self._dependencies = Dependencies()
        self._names: list[str] = []
        self._launched: list[int] = []
        self._ops: list[tuple[tuple[int, ...], bool]] = []
        self._ends = [device.timing_event()] if timed else []
        self._count_nodes()

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        whole = decomposed(self, func, args, kwargs)
        if whole is not NotImplemented:
            return whole
        with self._lock:
            self._check_for_hidden_work()
            if not self._device.is_on_its_stream():
                raise CannotFork(f"{calling_place()}: it has streams of its own")
            result = func(*args, **kwargs)
            touched = touched_by(func, args, kwargs, result)
            self._kept.append((args, kwargs, result))
            self._names.append(str(func))
            self._launched.append(len(self._ops) if touched.launches else -1)
            if touched.launches:
                self._ops.append((self._dependencies.before(touched), touched.barrier))
                if self._ends:
                    self._ends.append(self._device.timing_event())
            else:
                self._dependencies.made(touched)
            self._count_nodes()
            return result

    def trace(self) -> Trace:
        """Returns all operators of the capture, with their times in the last replay. If no times were measured, each
        operator has a time of one second."""
        times = [self._device.seconds_between(one, other) for one, other in pairwise(self._ends)]
        times = times or [1.0] * len(self._ops)
        ops = [Traced(after, took, barrier) for (after, barrier), took in zip(self._ops, times, strict=True)]
        return Trace(tuple(self._names), tuple(self._launched), tuple(ops))


class Forking(_CaptureMode):
    """A dispatch mode for a capture on several streams (lanes). It runs each operator on the lane that `plan` names.
    After each operator, it records an event, so that other lanes can wait for the operator.

    Args:
        device: The device.
        trace: The operators of an earlier run of the same function, in order.
        plan: The lane of each operator that puts work on a stream.
    """

    def __init__(self, device: CaptureDevice, trace: Trace, plan: Plan) -> None:
        super().__init__(device)
        self._trace = trace
        self._plan = plan
        self._lanes = device.lanes(plan.count)
        self._dependencies = Dependencies()
        self._next = 0
        self._last = [-1] * plan.count  # each lane's last operator, or -1
        self._events: list[object] = []
        self._waited = [
            [-1] * plan.count for _ in range(plan.count)
        ]  # [lane][other]: the last operator of `other` that `lane` waited for
        self.waits = 0

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        whole = decomposed(self, func, args, kwargs)
        if whole is not NotImplemented:
            return whole
        with self._lock:
            self._check_for_hidden_work()
            at = self._next
            self._next += 1
            if at >= len(self._trace.names) or self._trace.names[at] != str(func):
                raise CannotFork(f"it ran other operators than when it was traced: {func}")
            place = self._trace.launched[at]
            result = self._put(place, func, args, kwargs) if place >= 0 else func(*args, **kwargs)
            touched = touched_by(func, args, kwargs, result)
            if touched.launches != (place >= 0):
                raise CannotFork(f"an operator did other work than when it was traced: {func}")
            self._dependencies.made(touched, place)
            self._kept.append((args, kwargs, result))
            self._count_nodes()
            return result

    def _put(self, place: int, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The schema gives the reads and writes before the operator runs. New memory needs no wait.
        touched = touched_by(func, args, kwargs, None)
        lane = self._plan.lanes[place]
        before = self._dependencies.before(touched)
        for one in (at for at in self._last if at >= 0) if touched.barrier else before:
            self._follow(lane, one)
        with self._lanes.on(lane):
            result = func(*args, **kwargs)
            self._events.append(self._lanes.record_event(lane))
        self._last[lane] = place
        if touched.barrier:
            for other in range(self._plan.count):
                self._follow(other, place)
        return result

    def _follow(self, lane: int, place: int) -> None:
        """Makes the lane `lane` wait for the operator with the index `place`. Does nothing if the operator is on `lane`
        itself. Also does nothing if `lane` has already waited for the operator, or for a later operator on the
        operator's lane."""
        other = self._plan.lanes[place]
        if other != lane and self._waited[lane][other] < place:
            self._lanes.wait_event(lane, self._events[place])
            self._waited[lane][other] = place
            self.waits += 1

    def join(self) -> None:
        """Makes lane 0 wait for all other lanes, at the end of a capture.

        Raises:
            CannotFork: Fewer operators ran than in the earlier run in which the operators were recorded.
        """
        self._lanes.join()
        if self._next != len(self._trace.names):
            raise CannotFork("it ran fewer operators than when it was traced")
