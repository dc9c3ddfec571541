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


class _Row:
    """A pinned row, and the event after the copy to it. Both are used again once they were read."""

    __slots__ = ("event", "kind", "names", "values")

    def __init__(self, values: torch.Tensor, event: Any, kind: _Kind) -> None:
        self.values, self.event, self.kind = values, event, kind
        self.names: list[str] = []


class _Pending:
    """A step whose values are on their way."""

    __slots__ = ("added_ns", "rows", "step", "unready_ns", "values")

    def __init__(self, step: int, values: dict[str, Any], added_ns: int) -> None:
        self.step, self.values, self.added_ns = step, values, added_ns
        self.rows: list[_Row] = []
        self.unready_ns = 0  # how long after `add` it was last seen not to be there

    def is_there(self) -> bool:
        return all(row.event.query() for row in self.rows)


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
        self._free: dict[_Kind, list[_Row]] = {}
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
            if groups:
                with torch.no_grad():
                    for (device, dtype), (names, tensors) in groups.items():
                        self._send(pending, (device, dtype, len(names)), names, tensors)
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
        kind: _Kind,
        names: list[str],
        tensors: list[torch.Tensor],
    ) -> None:
        accelerator = accelerator_of(kind[0])
        if accelerator is None:
            pending.values.update(zip(names, (tensor.item() for tensor in tensors), strict=True))
            return
        self._on_device = True
        free = self._free.get(kind)
        if not free:
            free = self._free[kind] = _rows(accelerator, kind)
        row = free.pop()
        row.names = names
        row.values.copy_(torch.stack(tensors) if len(tensors) > 1 else tensors[0], non_blocking=True)
        row.event.record(accelerator.current())
        pending.rows.append(row)

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
            for row in pending.rows:
                row.event.synchronize()
            self._waited_ns += time.perf_counter_ns() - start
        self._pending.popleft()
        for row in pending.rows:
            pending.values.update(zip(row.names, row.values.tolist(), strict=True))
            self._free[row.kind].append(row)
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


def _rows(accelerator: Accelerator, kind: _Kind) -> list[_Row]:
    _, dtype, width = kind
    with torch.inference_mode(False):  # fit to be written to outside of it too
        values = torch.empty((_ROWS_AT_ONCE, width), dtype=dtype, device="cpu", pin_memory=True).unbind()
    return [_Row(each, accelerator.event(), kind) for each in values]


_open: set[MetricBuffer] = set()  # those with values under way, kept until these have arrived


def _note_open(buffer: MetricBuffer) -> None:
    if buffer._pending:
        _open.add(buffer)


@atexit.register
def _flush_all() -> None:
    for buffer in list(_open):
        buffer._finish()
