"""`MetricBuffer`: reads the losses and accuracies of each step without a wait for the device."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from unstall.errors import UsageError
from unstall.figures import counted, duration
from unstall.fix.metric_rows import MetricBatch, ScalarKind, ScalarPool, read_ns
from unstall.fix.tensors.accelerator import Accelerator, accelerator_of
from unstall.fix.wrapped import Printed, wrapped
from unstall.guest.instants import Span, TotalTime, instant

_MOST_AT_ONCE = 8  # most steps whose values are copied together
_TELLS = 0.05  # a smaller relative gain may be due to clocks and caches
_OF_THE_LAG = 4  # at most 1/4 of `max_lag` is copied together


@dataclass(frozen=True, slots=True)
class MetricRow:
    """The metrics of one step.

    Attributes:
        step: The number of the step, from 0.
        values: The values of the metrics, by name.
    """

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MetricStats(Printed):
    """Statistics of a `MetricBuffer`. Numbers and times are sums over all steps so far. Times are in ns.

    Attributes:
        steps: The number of steps that were added.
        arrived: The number of steps whose values were delivered.
        longest_lag: The largest number of steps between the `add` of a step and its delivery.
        add_ns: The host's time in `add`, without waits and without calls of `deliver`.
        waited_ns: The time for which the host waited for values, in `add` and `flush`.
        spared_ns: A lower bound of the time for which the host would have waited, in addition to `waited_ns`, if it had
            read each value immediately.
        calls_ns: The host's time for these reads without waits, extrapolated from the time of one read. None if it was
            not measured.
        note: A remark. "" if there is none.
    """

    steps: int
    arrived: int
    longest_lag: int
    add_ns: int
    waited_ns: int
    spared_ns: int
    calls_ns: int | None
    note: str

    @property
    def gain_ns(self) -> int | None:
        """A lower bound of the time that was saved, in ns. The comparison is with a program that reads each value in
        the step that computes the value. Negative if time was lost. None if the gain was not measured."""
        return None if self.calls_ns is None else self.spared_ns + self.calls_ns - self.add_ns

    @property
    def text(self) -> str:
        steps = max(self.steps, 1)
        text = (
            f"{counted(self.steps, 'step')}, {self.arrived:,} arrived, at most {self.longest_lag} late; "
            f"costs {duration(self.add_ns // steps)} a step in add(), waited {duration(self.waited_ns)}"
        )
        if self.calls_ns is not None and self.gain_ns is not None:
            at_once, gain = (self.spared_ns + self.calls_ns) // steps, abs(self.gain_ns) // steps
            text += f"; reading at once would cost at least {duration(at_once)} a step"
            if gain < _TELLS * at_once:
                text += ", about as much"
            else:
                text += f": that is up to {duration(gain)} lost" if self.gain_ns < 0 else f": {duration(gain)} gained"
        return f"{text}; {self.note}" if self.note else text


_Groups = dict[tuple[torch.device, torch.dtype], tuple[list[str], list[torch.Tensor]]]


class _Pending:
    """A step whose values have not been delivered yet.

    Values that were on a device are in rows of `batch`. `batch` is None if all values were on the host.
    """

    __slots__ = ("batch", "rows", "step", "values")

    def __init__(self, step: int) -> None:
        self.step = step
        self.values: dict[str, float] = {}
        self.batch: MetricBatch | None = None
        self.rows: list[tuple[ScalarKind, int, list[str]]] = []


class MetricBuffer:
    """Takes each step's metrics as tensors on the device. Delivers the metrics as numbers, in order, some steps later.

        with unstall.MetricBuffer(print) as metrics:
            for batch in loader:
                metrics.add(loss=step(batch))

    `add` packs a step's scalars with one kernel for each dtype. One copy to the host takes the scalars of up to eight
    steps, but at most `max_lag / 4` steps. If the device is behind, each step is copied separately. `add` waits only if
    more than `max_lag` steps are pending. It then waits for the oldest step. Meanwhile the device still has later steps
    to compute.

    Pending values are delivered when the `with` block ends, even if it ends by an exception. They are also delivered
    when the interpreter exits. If the process ends by `os._exit` or a fatal signal, pending values are lost. A forked
    process starts without pending values.

    Several threads may add to one buffer at the same time.

    Args:
        deliver: A function that `add`, `take` and `flush` call with each `MetricRow`. If None, `take` returns the rows.
        max_lag: The largest number of steps between `add` and delivery.
        stop_on_nan: Whether to raise FloatingPointError when a NaN arrives. A NaN arrives at most `max_lag` steps after
            the step that computed the NaN.

    Raises:
        UsageError: An argument is invalid.
    """

    def __init__(
        self, deliver: Callable[[MetricRow], object] | None = None, *, max_lag: int = 16, stop_on_nan: bool = False
    ) -> None:
        if deliver is not None and not callable(deliver):
            raise UsageError(f"a MetricBuffer gives its rows to a function, and {deliver!r} is none")
        if isinstance(max_lag, bool) or not hasattr(max_lag, "__index__") or max_lag < 0:
            raise UsageError(f"max_lag is a number of steps, not {max_lag!r}")
        self._deliver = deliver
        self._max_lag = max_lag
        self._stop_on_nan = stop_on_nan
        self._lock = threading.RLock()
        self._pending: deque[_Pending] = deque()
        self._at_once = max(1, min(_MOST_AT_ONCE, max_lag // _OF_THE_LAG))
        self._batch: MetricBatch | None  # steps are being added to it
        self._last: MetricBatch | None  # it was sent last
        self._accelerator: Accelerator | None  # of the last values
        self._begin_anew()
        self._arrived: deque[MetricRow] = deque()
        self._nan: str | None = None
        self._steps = self._done = self._longest_lag = 0
        self._adding, self._waiting, self._sparing = TotalTime(), TotalTime(), TotalTime()
        self._apart = TotalTime()  # in `add`, for waits and `deliver`
        self._is_adding = False
        self._reads = 0  # of values that were on a device
        self._read_ns: int | None = None  # the time of one read
        _all.add(self)

    def add(self, **metrics: torch.Tensor | float) -> None:
        """Adds one step's metrics by name.

        Args:
            **metrics: Numbers, or tensors of one element. The tensors may have any dtype and shape.

        Raises:
            ValueError: A tensor does not have exactly one element.
            UsageError: A CUDA graph is being captured.
            FloatingPointError: `stop_on_nan` is True, and a NaN has arrived.
        """
        start = instant()
        with self._lock:
            self._is_adding = True
            try:
                self._add(metrics)
            finally:
                self._is_adding = False
            self._adding.add(Span(start, instant()))
            if self._nan is not None:
                self._raise_on_nan()

    def _add(self, metrics: Mapping[str, torch.Tensor | float]) -> None:
        pending = _Pending(self._steps)
        values = pending.values
        groups: _Groups = {}
        for name, value in metrics.items():
            if not isinstance(value, torch.Tensor):
                values[name] = value.item() if hasattr(value, "item") else value
                continue
            if value.dim():
                if value.numel() != 1:
                    shape = tuple(value.shape)
                    raise ValueError(f"{name} has the shape {shape}, where a metric has one element: add its mean")
                value = value.reshape(())
            values[name] = math.nan  # its place in the row
            kind = value.device, value.dtype
            group = groups.get(kind)
            if group is None:
                group = groups[kind] = ([], [])
            group[0].append(name)
            group[1].append(value)
        if groups:
            with torch.no_grad():
                self._put(pending, groups)
        self._pending.append(pending)
        self._steps += 1
        if self._batch is not None and self._steps - self._batch.first >= self._batch.limit:
            self._send()
        self._look()
        while len(self._pending) > self._max_lag:
            self._deliver_next(wait=True)
        if self._pending:
            _open.add(self)

    def take(self) -> list[MetricRow]:
        """Returns the rows that have arrived since the last call of `take`. Returns no rows if the buffer has a
        `deliver` function.

        Raises:
            FloatingPointError: `stop_on_nan` is True, and a NaN has arrived.
        """
        with self._lock:
            self._catch_up()
            self._raise_on_nan()
            rows = list(self._arrived)
            self._arrived.clear()
            return rows

    def flush(self) -> None:
        """Waits for all pending values, and delivers them.

        Raises:
            FloatingPointError: `stop_on_nan` is True, and a NaN has arrived.
        """
        with self._lock:
            while self._pending:
                self._deliver_next(wait=True)
            self._raise_on_nan()

    def stats(self) -> MetricStats:
        """Returns statistics of all steps so far. The first call measures the time of one `.item()` on a separate
        stream. This measurement takes about 0.1 ms."""
        note = "" if self._reads or not self._steps else "nothing was on a device: values were read at once"
        with self._lock:
            if self._read_ns is None and self._accelerator is not None and not self._accelerator.capturing():
                self._read_ns = read_ns(self._accelerator)
        calls = None if self._read_ns is None else self._reads * self._read_ns
        return MetricStats(
            steps=self._steps,
            arrived=self._done,
            longest_lag=self._longest_lag,
            add_ns=self._adding.ns - self._apart.ns,
            waited_ns=self._waiting.ns,
            spared_ns=self._sparing.ns,
            calls_ns=calls,
            note=note,
        )

    def __repr__(self) -> str:
        where = "" if self._deliver is None else f"{getattr(self._deliver, '__name__', type(self._deliver).__name__)}, "
        return wrapped(f"MetricBuffer({where}max_lag={self._max_lag}): {self.stats().text}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()
        else:
            self._finish()

    def _put(self, pending: _Pending, groups: _Groups) -> None:
        """Packs a step's scalars on the device into a row of the current batch. Reads scalars on the CPU
        immediately."""
        there: list[tuple[ScalarKind, Accelerator]] = []
        for (device, dtype), (names, tensors) in groups.items():
            accelerator = accelerator_of(device)
            if accelerator is None:
                pending.values.update(zip(names, (tensor.item() for tensor in tensors), strict=True))
                continue
            if accelerator.capturing():
                raise UsageError(
                    "MetricBuffer.add() cannot be captured in a CUDA graph: return the metrics, and add them"
                )
            there.append(((device, dtype, len(names)), accelerator))
        streams = {accelerator: accelerator.current() for _, accelerator in there}
        if self._batch is not None and not all(self._batch.fits(*each) for each in streams.items()):
            self._send()
        for kind, accelerator in there:
            if self._batch is None:
                self._batch = self._next_batch()
                for each in streams.items():
                    self._batch.fits(*each)
            names, tensors = groups[kind[:2]]
            pending.batch = self._batch
            try:
                row = self._batch.put(kind, tensors)
            except BaseException:
                self._send()  # the row may be half written
                raise
            pending.rows.append((kind, row, names))
            self._reads += len(names)
            self._accelerator = accelerator

    def _next_batch(self) -> MetricBatch:
        """Returns a new batch, for the next steps. If the device is behind, the batch takes one step only. The host
        then has time for one copy in each step. A call of `add` then never waits for more than one step."""
        behind = self._last is not None and not self._last.is_there()
        return MetricBatch(self._pool, self._steps, 1 if behind else self._at_once, behind=behind)

    def _send(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.send()
            self._last = batch

    def _catch_up(self) -> None:
        """Delivers all steps that the device has finished. If the values of these steps are not on the host yet, copies
        them first."""
        batch = self._batch
        if batch is not None and batch.may_send():
            computed = batch.is_computed()
            self._send()
            if computed:
                batch.wait()
        self._look()

    def _look(self) -> None:
        """Delivers all steps whose values have been copied to the host."""
        while self._pending:
            batch = self._pending[0].batch
            if batch is not None and not batch.is_there():
                return
            self._deliver_next(wait=False)

    def _deliver_next(self, *, wait: bool) -> None:
        row = self._next_row(wait=wait)
        if self._deliver is None:
            self._arrived.append(row)
            return
        start = instant()
        try:
            self._deliver(row)
        finally:
            self._was_apart(Span(start, instant()))

    def _next_row(self, *, wait: bool) -> MetricRow:
        pending = self._pending[0]
        values, batch = pending.values, pending.batch
        if batch is not None:
            if wait:
                self._wait_for(batch)
            if not batch.behind:  # a loop that reads at once would not be so far ahead
                batch.add_unready(self._sparing)
            for kind, row, names in pending.rows:
                values.update(zip(names, batch.row(kind, row), strict=True))
        self._pending.popleft()
        self._done += 1
        self._longest_lag = max(self._longest_lag, self._steps - 1 - pending.step)
        if self._stop_on_nan and self._nan is None:
            bad = [name for name, value in values.items() if isinstance(value, (float, complex)) and value != value]
            self._nan = f"{bad[0]} is NaN in step {pending.step}" if bad else None
        if not self._pending:
            _open.discard(self)
        return MetricRow(pending.step, values)

    def _wait_for(self, batch: MetricBatch) -> None:
        if batch is self._batch:
            self._send()
        if not batch.is_there():
            start = instant()
            batch.wait()
            waited = Span(start, instant())
            self._waiting.add(waited)
            self._was_apart(waited)

    def _was_apart(self, span: Span) -> None:
        """Adds to the time that `add` did not spend on adding. Does nothing outside of `add`."""
        if self._is_adding:
            self._apart.add(span)

    def _raise_on_nan(self) -> None:
        if self._nan is not None:
            reason, self._nan = self._nan, None
            raise FloatingPointError(reason)

    def _finish(self) -> None:
        """Delivers all pending steps. Raises no exception, because another exception is already being raised or the
        interpreter is exiting."""
        with self._lock:
            refused: list[str] = []
            while self._pending:
                try:
                    row = self._next_row(wait=True)
                except RuntimeError:  # a device error: nothing is computed any more
                    break
                try:
                    self._arrived.append(row) if self._deliver is None else self._deliver(row)
                except Exception as error:
                    refused.append(f"of step {row.step} were not taken: {type(error).__name__}: {error}")
            if self._pending:
                refused.append(f"of {counted(len(self._pending), 'step')} from {self._pending[0].step} on are lost")
                self._pending.clear()
                self._begin_anew()
                _open.discard(self)
        for what in refused:
            print(f"unstall: the metrics {what}", file=sys.stderr)

    def _begin_in_fork(self) -> None:
        """Resets the buffer in a forked process, because pending steps, events and the lock belong to the parent
        process."""
        self._lock = threading.RLock()
        self._pending.clear()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Drops the memory and the events of all pending steps."""
        self._pool = ScalarPool(self._at_once)
        self._batch = None
        self._last = None
        self._accelerator = None


_open: set[MetricBuffer] = set()  # with values on their way; kept until these have arrived
_all: weakref.WeakSet[MetricBuffer] = weakref.WeakSet()


@atexit.register
def _flush_all() -> None:
    for buffer in list(_open):
        buffer._finish()


def _forget_parents() -> None:
    _open.clear()
    for buffer in list(_all):
        buffer._begin_in_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
