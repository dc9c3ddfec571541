"""Losses and accuracies of each step, without a step that waits for them."""

from __future__ import annotations

import atexit
import contextlib
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from unstall.figures import counted, duration
from unstall.fix.accelerator import Accelerator, accelerator_for

_ROWS_AT_ONCE = 64  # pinned rows of one width that are made together


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


class _Pending:
    """A step whose values are on their way."""

    __slots__ = ("added_ns", "events", "names", "parts", "step", "unready_ns", "values")

    def __init__(self, step: int, values: dict[str, Any], added_ns: int) -> None:
        self.step, self.values, self.added_ns = step, values, added_ns
        self.parts: list[tuple[list[str], torch.Tensor, tuple[int, torch.dtype]]] = []
        self.events: list[Any] = []
        self.unready_ns = 0  # how long after `add` it was last seen not to be there

    def is_there(self) -> bool:
        return all(event.query() for event in self.events)


class MetricBuffer:
    """Takes a step's metrics as tensors on the device and gives them as numbers, in order, some steps later.

        with unstall.MetricBuffer(print) as metrics:
            for batch in loader:
                metrics.add(loss=step(batch))

    `add` packs a step's scalars by one kernel and copies them by one copy (one of each for every dtype). It waits for
    nothing, unless the device is more than `max_lag` steps behind: then for the step that long ago, while the device
    has all the later ones to do. `deliver` is called with each MetricRow, within `add` and `flush`; without it `take`
    gives what has arrived. What is under way is delivered when the block ends, by an exception too, and when the
    interpreter exits. `stop_on_nan` raises FloatingPointError once a NaN has arrived, at most `max_lag` steps late.
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
        self._free: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._arrived: deque[MetricRow] = deque()
        self._nan: str | None = None
        self._steps = self._done = self._longest_lag = self._add_ns = self._waited_ns = self._spared_ns = 0
        self._on_device = False

    def add(self, **metrics: torch.Tensor | float) -> None:
        """One step's: tensors of one element each, or numbers. Raises ValueError for larger tensors."""
        start = time.perf_counter_ns()
        with self._lock:
            waited = self._waited_ns
            pending = _Pending(self._steps, {}, start)
            groups: dict[tuple[torch.device, torch.dtype], tuple[list[str], list[torch.Tensor]]] = {}
            for name, value in metrics.items():
                if not isinstance(value, torch.Tensor):
                    pending.values[name] = value.item() if hasattr(value, "item") else value
                    continue
                if value.numel() != 1:
                    shape = tuple(value.shape)
                    raise ValueError(f"{name} has the shape {shape}, where a metric has one element: add its mean")
                pending.values[name] = None  # its place in the row
                names, tensors = groups.setdefault((value.device, value.dtype), ([], []))
                names.append(name)
                tensors.append(value.reshape(()) if value.dim() else value)
            with torch.no_grad():
                for (device, dtype), (names, tensors) in groups.items():
                    self._send(pending, accelerator_for(device), dtype, names, tensors)
            self._pending.append(pending)
            self._steps += 1
            self._look()
            while len(self._pending) > self._max_lag and not self._is_next_there():
                self._arrive(wait=True)
            self._add_ns += time.perf_counter_ns() - start - (self._waited_ns - waited)
            _note_open(self)
            self._raise_on_nan()

    def take(self) -> list[MetricRow]:
        """What has arrived and was not taken yet; nothing where `deliver` was given."""
        with self._lock:
            self._look()
            rows = list(self._arrived)
            self._arrived.clear()
            self._raise_on_nan()
            return rows

    def flush(self) -> None:
        """Waits for all that was added, and delivers it."""
        with self._lock:
            self._drain()
            self._raise_on_nan()

    def stats(self) -> MetricStats:
        note = "" if self._on_device or not self._steps else "nothing was on a device: values were read at once"
        return MetricStats(
            self._steps, self._done, self._longest_lag, self._add_ns, self._waited_ns, self._spared_ns, note
        )

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
        accelerator: Accelerator | None,
        dtype: torch.dtype,
        names: list[str],
        tensors: list[torch.Tensor],
    ) -> None:
        if accelerator is None:
            pending.values.update(zip(names, (tensor.item() for tensor in tensors), strict=True))
            return
        self._on_device = True
        kind = (len(names), dtype)
        free = self._free.setdefault(kind, [])
        if not free:
            free.extend(torch.empty((_ROWS_AT_ONCE, len(names)), dtype=dtype, pin_memory=True).unbind())
        row = free.pop()
        row.copy_(torch.stack(tensors), non_blocking=True)
        event = accelerator.event()
        event.record(accelerator.current())
        pending.events.append(event)
        pending.parts.append((names, row, kind))

    def _is_next_there(self) -> bool:
        """Delivers the oldest if it is there."""
        pending = self._pending[0]
        if not pending.is_there():
            pending.unready_ns = time.perf_counter_ns() - pending.added_ns
            return False
        self._arrive(wait=False)
        return True

    def _look(self) -> None:
        while self._pending and self._is_next_there():
            pass

    def _drain(self) -> None:
        while self._pending:
            if not self._is_next_there():
                self._arrive(wait=True)

    def _arrive(self, *, wait: bool) -> None:
        pending = self._pending[0]
        if wait:
            start = time.perf_counter_ns()
            for event in pending.events:
                event.synchronize()
            self._waited_ns += time.perf_counter_ns() - start
        self._pending.popleft()
        for names, row, kind in pending.parts:
            pending.values.update(zip(names, row.tolist(), strict=True))
            self._free[kind].append(row)
        self._done += 1
        self._spared_ns += pending.unready_ns
        self._longest_lag = max(self._longest_lag, self._steps - 1 - pending.step)
        if self._nan is None:
            bad = [name for name, value in pending.values.items() if isinstance(value, float) and math.isnan(value)]
            self._nan = f"{bad[0]} is NaN in step {pending.step}" if bad else None
        row_of_step = MetricRow(pending.step, pending.values)
        if not self._pending:
            _open.discard(self)
        if self._deliver is None:
            self._arrived.append(row_of_step)
        else:
            self._deliver(row_of_step)

    def _raise_on_nan(self) -> None:
        if self._stop_on_nan and self._nan is not None:
            reason, self._nan = self._nan, None
            raise FloatingPointError(reason)

    def _finish(self) -> None:
        """As `flush`, where another error is on its way or nobody is left to raise one to."""
        with self._lock, contextlib.suppress(RuntimeError):
            self._drain()
        if self._pending:
            lost, now = len(self._pending), self._pending[0].step
            self._pending.clear()
            _open.discard(self)
            print(f"unstall: the metrics of {counted(lost, 'step')} from {now} on are lost", file=sys.stderr)


_open: set[MetricBuffer] = set()  # those with values under way, kept until these have arrived


def _note_open(buffer: MetricBuffer) -> None:
    if buffer._pending:
        _open.add(buffer)


@atexit.register
def _flush_all() -> None:
    for buffer in list(_open):
        buffer._finish()
