"""Records a few calls in this process with CUPTI, and returns their device ops and driver calls."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from unstall.cupti import call_stacks
from unstall.cupti.decode import Activity, read_activity
from unstall.cupti.driver_calls import DRIVER
from unstall.cupti.layouts import Kind
from unstall.cupti.recorder import Cupti
from unstall.errors import UnstallError
from unstall.guest import active
from unstall.lines.places import Frame, read_places
from unstall.timeline.columns import I8, I64, Bool, CopyDirection, DeviceKind

_KINDS = {
    Kind.KERNEL: DeviceKind.KERNEL,
    Kind.MEMCPY: DeviceKind.COPY,
    Kind.MEMCPY_PEER: DeviceKind.COPY,
    Kind.MEMSET: DeviceKind.MEMSET,
}
# cupti_activity.h: CUpti_ActivityMemcpyKind
_DIRECTIONS = {
    1: CopyDirection.HOST_TO_DEVICE,
    2: CopyDirection.DEVICE_TO_HOST,
    8: CopyDirection.DEVICE_TO_DEVICE,
    9: CopyDirection.HOST_TO_HOST,
    10: CopyDirection.PEER_TO_PEER,
}


@dataclass(frozen=True, eq=False, slots=True)
class OpColumns:
    """Device ops (kernels, copies and memsets) as columns, sorted by start.

    Attributes:
        start: When the op begins, in ns of CLOCK_MONOTONIC.
        end: When the op ends, in ns of CLOCK_MONOTONIC.
        stream: The stream on which the op ran.
        graph: Whether a CUDA graph launched the op.
        kind: The kind of op, as a `DeviceKind`.
        direction: The direction of a copy, as a `CopyDirection`.
        bytes: How many bytes the op moves; -1 if this is not known.
        launch: The index of the driver call that launched the op, in `DriverColumns`; -1 if the
            call was not recorded.
    """

    start: I64
    end: I64
    stream: I64
    graph: Bool
    kind: I8
    direction: I8
    bytes: I64
    launch: I64


@dataclass(frozen=True, eq=False, slots=True)
class DriverColumns:
    """Calls to the CUDA driver as columns, sorted by start.

    Attributes:
        name: The name of the driver's function, without the suffixes of per-thread streams.
        start: When the call begins, in ns of CLOCK_MONOTONIC.
        end: When the call ends, in ns of CLOCK_MONOTONIC.
        stream: The stream that the call names.
        event: The event that the call names.
        stack: The Python stack of the call, as a key of `CallRecords.stacks`.
    """

    name: tuple[str, ...]
    start: I64
    end: I64
    stream: I64
    event: I64
    stack: I64


@dataclass(frozen=True, eq=False, slots=True)
class CallRecords:
    """What was recorded in a `with FewCalls(…)` block: the device ops, the calls to the CUDA
    driver, and the Python stacks of these calls.
    """

    ops: OpColumns
    calls: DriverColumns
    stacks: dict[int, tuple[Frame, ...]]  # innermost frame first; empty if stacks were not recorded


class FewCalls:
    """A context manager that records this process during a `with` block. After the block, its
    attribute `records` has the recording.

    The device must be idle when the block ends. No other recording of this process can begin during
    the block.

    Args:
        under_way: The error message for another recording that tries to begin during the block.
        stacks: Whether to record the Python stack of each call too. Ignored if stacks cannot be
            read in this process.

    Raises:
        UsageError: Another recording of this process is active when the block begins.
        UnstallError: CUPTI does not record in this process, or lost data. Raised when the block
            begins or ends.
    """

    def __init__(self, under_way: str, *, stacks: bool) -> None:
        self.under_way = under_way
        self.records: CallRecords
        self._wants_stacks = stacks and call_stacks.unavailable() is None
        self._has_stacks = False
        self._folder: Path
        self._undo = ExitStack()
        self._stop = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="unstall-bench-")))
            with ExitStack() as stop:
                active.activate(self)
                stop.callback(active.deactivate, self)
                recorder = Cupti(self._folder)
                if self._wants_stacks:
                    with suppress(UnstallError):  # no tool of sys.monitoring is free
                        stacks = call_stacks.CallStacks(self._folder)
                        stacks.start()
                        stop.callback(stacks.stop)
                        self._has_stacks = True
                recorder.start()
                stop.callback(recorder.stop)
                self._stop = stop.pop_all()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._undo:
            self._stop.close()
            if error is None:
                stacks = read_places(self._folder, str(Path.cwd())).stacks if self._has_stacks else {}
                self.records = call_records(read_activity(self._folder), stacks)

    # The interface of an active recording. It ignores step boundaries, and ends before its caller continues.

    def step_boundary(self, kind: str, who: int = 0) -> None: ...

    def loop_ended(self, kind: str, who: int) -> None: ...

    def end(self, why: str) -> None: ...

    def forked(self) -> None: ...


def call_records(activity: Activity, stacks: dict[int, tuple[Frame, ...]]) -> CallRecords:
    """Converts a recording to columns.

    Args:
        activity: What the recorder `cupti` recorded: device ops and calls to the driver.
        stacks: The Python stacks of the calls, by number. They are returned unchanged.
    """
    calls = activity.calls[np.argsort(activity.calls["start"], kind="stable")]
    names = (DRIVER.get(int(what), "").removesuffix("_ptsz").removesuffix("_ptds") for what in calls["what"])
    columns = DriverColumns(
        tuple(names), *(calls[name].astype(np.int64) for name in ("start", "end", "stream", "event", "stack"))
    )
    return CallRecords(_ops(activity, calls["correlation"].astype(np.int64)), columns, stacks)


def _ops(activity: Activity, of_calls: I64) -> OpColumns:
    """Returns the device ops. `of_calls` are the correlation ids of the driver calls."""
    tables = [(kind, table) for kind, table in activity.tables.items() if kind in _KINDS and len(table)]

    def column(name: str) -> I64:
        return np.concatenate([np.zeros(0, np.int64), *(_column(table, name) for _, table in tables)])

    start, correlation = column("start"), column("correlation")
    order = np.argsort(start, kind="stable")
    kinds = [np.full(len(table), _KINDS[kind], np.int8) for kind, table in tables]
    return OpColumns(
        start=start[order],
        end=column("end")[order],
        stream=column("stream")[order],
        graph=column("graph")[order] != 0,
        kind=np.concatenate([np.zeros(0, np.int8), *kinds])[order],
        direction=np.concatenate([np.zeros(0, np.int8), *(_direction(table) for _, table in tables)])[order],
        bytes=column("bytes")[order],
        launch=_rows_of(of_calls, correlation[order]),
    )


def _column(table: np.ndarray, name: str) -> I64:
    """Returns a column of the table. If the table lacks the column, returns -1 for each row."""
    has = name in (table.dtype.names or ())
    return table[name].astype(np.int64) if has else np.full(len(table), -1, np.int64)


def _direction(table: np.ndarray) -> I8:
    directions = np.zeros(256, np.int8)
    directions[list(_DIRECTIONS)] = list(_DIRECTIONS.values())
    has = "direction" in (table.dtype.names or ())
    return directions[table["direction"]] if has else np.zeros(len(table), np.int8)


def _rows_of(known: I64, wanted: I64) -> I64:
    """Returns, for each number in `wanted`, its index in `known`, or -1 if `known` does not contain the number."""
    if not len(known):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(known[order][at] == wanted, order[at], -1)
