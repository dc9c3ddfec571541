"""Losses and accuracies of each step, without a step that waits for them."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from unstall.errors import UsageError
from unstall.figures import counted, duration
from unstall.fix.accelerator import Accelerator, accelerator_of

_ROWS_AT_ONCE = 8  # pinned rows of one width that are made together


@dataclass(frozen=True, slots=True)
class MetricRow:
    """The values of one step; steps are counted from 0."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class MetricStats:
    steps: int
    arrived: int
    longest_lag: int  # steps
    add_ns: int  # the host's time in `add`, waits left out
    waited_ns: int  # for a device more than `max_lag` steps behind, and in `flush`
    spared_ns: int  # what reading each value at once would have waited for, at the least
    note: str

    def __str__(self) -> str:
        each = self.add_ns // max(self.steps, 1)
        text = (
            f"{counted(self.steps, 'step')}, {self.arrived:,} arrived, at most {self.longest_lag} late; "
            f"{duration(each)} a step in add(), waited {duration(self.waited_ns)}, "
            f"spared at least {duration(self.spared_ns)} of waits"
        )
        return f"{text}; {self.note}" if self.note else text


_Kind = tuple[torch.device, torch.dtype, int]
_Groups = dict[tuple[torch.device, torch.dtype], tuple[list[str], list[torch.Tensor]]]


class _Row:
    """A pinned row, and the event after the copy to it. Both are used again once they were read."""

    __slots__ = ("event", "kind", "names", "values")

    def __init__(self, values: torch.Tensor, event: Any, kind: _Kind) -> None:
        self.values, self.event, self.kind = values, event, kind
        self.names: list[str] = []


class _Pending:
    """A step whose values are on their way."""

    __slots__ = ("added_ns", "rows", "step", "unready_ns", "values")

    def __init__(self, step: int, added_ns: int) -> None:
        self.step, self.added_ns = step, added_ns
        self.values: dict[str, Any] = {}
        self.rows: list[_Row] = []
        self.unready_ns = 0  # how long after `add` it was last seen not to be there

    def is_there(self) -> bool:
        for row in self.rows:  # noqa: SIM110 - a generator would take longer than most queries
            if not row.event.query():
                return False
        return True


class MetricBuffer:
    """Takes a step's metrics as tensors on the device and gives them as numbers, in order, some steps later.

        with unstall.MetricBuffer(print) as metrics:
            for batch in loader:
                metrics.add(loss=step(batch))

    `add` packs a step's scalars by one kernel and copies them by one copy (one of each for every dtype). It waits for
    nothing, unless the device is more than `max_lag` steps behind: then for the step that long ago, while the device
    has all the later ones to do. `deliver` is called with each MetricRow, within `add` and `flush`; without it `take`
    gives what has arrived. What is under way is delivered when the block ends, by an exception too, and when the
    interpreter exits; a signal that kills loses it, and so does `os._exit`. `stop_on_nan` raises FloatingPointError
    once a NaN has arrived, at most `max_lag` steps late. A forked process begins with nothing under way.
    """

    def __init__(
        self, deliver: Callable[[MetricRow], Any] | None = None, *, max_lag: int = 16, stop_on_nan: bool = False
    ) -> None:
        if max_lag < 0:
            raise ValueError(f"max_lag is a number of steps, not {max_lag}")
        self._deliver = deliver
        self._max_lag = max_lag
        self._stop_on_nan = stop_on_nan
        self._lock = threading.RLock()
        self._pending: deque[_Pending] = deque()
        self._free: dict[_Kind, list[_Row]] = {}
        self._arrived: deque[MetricRow] = deque()
        self._nan: str | None = None
        self._steps = self._done = self._longest_lag = self._add_ns = self._waited_ns = self._spared_ns = 0
        self._on_device = False
        _all.add(self)

    def add(self, **metrics: torch.Tensor | float) -> None:
        """One step's: tensors of one element each, or numbers. Raises ValueError for larger tensors."""
        start = time.perf_counter_ns()
        with self._lock:
            waited = self._waited_ns
            pending = _Pending(self._steps, start)
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
                values[name] = None  # its place in the row
                kind = value.device, value.dtype
                group = groups.get(kind)
                if group is None:
                    group = groups[kind] = ([], [])
                group[0].append(name)
                group[1].append(value.detach() if value.requires_grad else value)
            for (device, dtype), (names, tensors) in groups.items():
                self._send(pending, (device, dtype, len(names)), names, tensors)
            self._pending.append(pending)
            self._steps += 1
            self._look()
            while len(self._pending) > self._max_lag:
                self._deliver_next(wait=True)
            if self._pending:
                _open.add(self)
            self._add_ns += time.perf_counter_ns() - start - (self._waited_ns - waited)
            if self._nan is not None:
                self._raise_on_nan()

    def take(self) -> list[MetricRow]:
        """What has arrived and was not taken yet; nothing where `deliver` was given."""
        with self._lock:
            self._look()
            self._raise_on_nan()
            rows = list(self._arrived)
            self._arrived.clear()
            return rows

    def flush(self) -> None:
        """Waits for all that was added, and delivers it."""
        with self._lock:
            while self._pending:
                self._deliver_next(wait=True)
            self._raise_on_nan()

    def stats(self) -> MetricStats:
        note = "" if self._on_device or not self._steps else "nothing was on a device: values were read at once"
        return MetricStats(
            self._steps, self._done, self._longest_lag, self._add_ns, self._waited_ns, self._spared_ns, note
        )

    def __repr__(self) -> str:
        where = "" if self._deliver is None else f"{getattr(self._deliver, '__name__', type(self._deliver).__name__)}, "
        return f"MetricBuffer({where}max_lag={self._max_lag}): {self.stats()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()
        else:
            self._finish()

    def _send(
        self,
        pending: _Pending,
        kind: _Kind,
        names: list[str],
        tensors: list[torch.Tensor],
    ) -> None:
        accelerator = accelerator_of(kind[0])
        if accelerator is None:
            pending.values.update(zip(names, (tensor.item() for tensor in tensors), strict=True))
            return
        if accelerator.capturing():
            raise UsageError("MetricBuffer.add() cannot be captured in a CUDA graph: return the metrics, and add them")
        self._on_device = True
        free = self._free.get(kind)
        if not free:
            free = self._free[kind] = _rows(accelerator, kind)
        row = free.pop()
        row.names = names
        row.values.copy_(torch.stack(tensors) if len(tensors) > 1 else tensors[0], non_blocking=True)
        row.event.record(accelerator.current())
        pending.rows.append(row)

    def _look(self) -> None:
        """Delivers what is there."""
        while self._pending:
            pending = self._pending[0]
            if not pending.is_there():
                pending.unready_ns = time.perf_counter_ns() - pending.added_ns
                return
            self._deliver_next(wait=False)

    def _deliver_next(self, *, wait: bool) -> None:
        row = self._next_row(wait=wait)
        if self._deliver is None:
            self._arrived.append(row)
        else:
            self._deliver(row)

    def _next_row(self, *, wait: bool) -> MetricRow:
        pending = self._pending[0]
        if wait:
            self._wait_for(pending)
        values = pending.values
        for row in pending.rows:
            values.update(zip(row.names, row.values.tolist(), strict=True))
            self._free[row.kind].append(row)
        self._pending.popleft()
        self._done += 1
        self._spared_ns += pending.unready_ns
        self._longest_lag = max(self._longest_lag, self._steps - 1 - pending.step)
        if self._stop_on_nan and self._nan is None:
            bad = [name for name, value in values.items() if isinstance(value, (float, complex)) and value != value]
            self._nan = f"{bad[0]} is NaN in step {pending.step}" if bad else None
        if not self._pending:
            _open.discard(self)
        return MetricRow(pending.step, values)

    def _wait_for(self, pending: _Pending) -> None:
        if pending.is_there():
            return
        start = time.perf_counter_ns()
        pending.unready_ns = start - pending.added_ns
        for row in pending.rows:
            row.event.synchronize()
        self._waited_ns += time.perf_counter_ns() - start

    def _raise_on_nan(self) -> None:
        if self._nan is not None:
            reason, self._nan = self._nan, None
            raise FloatingPointError(reason)

    def _finish(self) -> None:
        """As `flush`, where another error is on its way or nobody is left to raise one to."""
        with self._lock:
            refused: list[str] = []
            while self._pending:
                try:
                    row = self._next_row(wait=True)
                except RuntimeError:  # of the device, which computes nothing any more
                    break
                try:
                    self._arrived.append(row) if self._deliver is None else self._deliver(row)
                except Exception as error:
                    refused.append(f"of step {row.step} were not taken: {type(error).__name__}: {error}")
            if self._pending:
                refused.append(f"of {counted(len(self._pending), 'step')} from {self._pending[0].step} on are lost")
                self._pending.clear()
                _open.discard(self)
        for what in refused:
            print(f"unstall: the metrics {what}", file=sys.stderr)

    def _begin_in_fork(self) -> None:
        """The rows under way are the parent's, and so are the events and whoever holds the lock."""
        self._lock = threading.RLock()
        self._pending.clear()
        self._free.clear()


def _rows(accelerator: Accelerator, kind: _Kind) -> list[_Row]:
    _, dtype, width = kind
    with torch.inference_mode(False):  # fit to be written to outside of it too
        values = torch.empty((_ROWS_AT_ONCE, width), dtype=dtype, device="cpu", pin_memory=True).unbind()
    return [_Row(each, accelerator.event(), kind) for each in values]


_open: set[MetricBuffer] = set()  # those with values under way, kept until these have arrived
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
