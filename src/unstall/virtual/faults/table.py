"""Makes the table `Faults` of a timeline. The faults name records of the shim's log by number, and
the table names rows of `timeline.host`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from unstall.timeline.columns import I32, FaultKind, Faults
from unstall.timeline.fault_details import FaultDetails, FaultInput, WrongValue, packed
from unstall.virtual.faults.fault_log import Ended, FaultLog, FaultRecord
from unstall.virtual.log import LogCode, RawFault
from unstall.virtual.simulation.history import Happened

_KINDS = {
    "aten::nll_loss": FaultKind.CLASS,
    "aten::multi_margin_loss": FaultKind.CLASS,
    "aten::multilabel_margin_loss": FaultKind.CLASS,
    "aten::binary_cross_entropy": FaultKind.PROBABILITY,
    "aten::bernoulli": FaultKind.PROBABILITY,
    "aten::multinomial": FaultKind.WEIGHT,
    "aten::_assert_async": FaultKind.ASSERTION,
    "aten::poisson": FaultKind.OTHER,
    "aten::masked_scatter": FaultKind.OTHER,
}
"""The kind of a fault, by the start of the operator's name. The assertions of all other operators check indices."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the timeline's table `Faults`, before records of the shim's log are replaced by rows
    of `timeline.host`.

    Attributes:
        kind: What the assertion checked.
        call: The number of the record that launched the work that failed; -1 if there is none.
        replay: The number of the record that launched the CUDA graph with this work; -1 if there is
            none.
        noticed: The number of the record at which Python got the error; -1 if there is none.
        device: The device.
        stream: The stream.
        ended: Whether this fault ended the program.
        details: The kernel, the assertion, and the value that was wrong.
    """

    kind: FaultKind
    call: int
    replay: int
    noticed: int
    device: int
    stream: int
    ended: bool
    details: FaultDetails


def faults_table(
    log: FaultLog,
    happened: Happened,
    host_row: I32,
    stream_row: Callable[[int, int], int],
    text: Callable[[str], int],
) -> Faults:
    """Returns the table `Faults` of a timeline.

    Args:
        log: The faults.
        happened: The records of the shim's log.
        host_row: For each record, the index in `timeline.host` of its call, or of the operator that
            encloses it; -1 if there is neither.
        stream_row: A function of a device and a stream. Returns the index of that stream in
            `timeline.streams`.
        text: A function of a text. Returns its index in the timeline's strings.
    """
    rows = [*_failed(log, happened), *_refused(log)]

    def calls(records: Iterable[int]) -> I32:
        return np.array([int(host_row[record]) if record >= 0 else -1 for record in records], np.int32)

    return Faults(
        kind=np.array([row.kind for row in rows], np.int8),
        call=calls(row.call for row in rows),
        replay=calls(row.replay for row in rows),
        noticed=calls(row.noticed for row in rows),
        device=np.array([row.device for row in rows], np.int32),
        stream=np.array([stream_row(row.device, row.stream) for row in rows], np.int32),
        iteration=np.full(len(rows), -1, np.int64),
        ended=np.array([row.ended for row in rows], np.bool_),
        details=np.array([text(packed(row.details)) for row in rows], np.int32),
    )


def _failed(log: FaultLog, happened: Happened) -> list[_Row]:
    """Returns a row for each assertion that failed in a kernel. If such a fault ended the program,
    `ended` is True for the one whose error Python got last.
    """
    faults = log.faults()
    last = max((fault.noticed for fault in faults), default=-1) if log.ended == Ended.FAULT else -1
    return [
        _Row(
            kind=_kind(fault.raw),
            call=captured_at(fault, happened) if fault.node else fault.record,
            replay=replayed_at(fault, happened) if fault.node else -1,
            noticed=fault.noticed,
            device=fault.device,
            stream=fault.stream,
            ended=fault.noticed == last != -1,
            details=details_of(fault.raw),
        )
        for fault in faults
    ]


def _refused(log: FaultLog) -> list[_Row]:
    """Returns a row for the memory request that failed and so ended the program. Returns an empty
    list if the program did not end so.
    """
    refusal = log.refusal
    if log.ended != Ended.MEMORY or refusal is None:
        return []
    details = FaultDetails(check=str(refusal.error))
    return [_Row(FaultKind.MEMORY, refusal.record, -1, -1, refusal.device, -1, ended=True, details=details)]


def captured_at(fault: FaultRecord, happened: Happened) -> int:
    """Returns the number of the record, in the shim's log, that captured the launch that failed.
    Returns -1 if the log has no such record.

    Args:
        fault: A fault in a CUDA graph.
        happened: The records of the log.
    """
    found = np.flatnonzero((happened.code == LogCode.LAUNCH) & (happened.a == fault.node))
    return int(found[0]) if len(found) else -1


def replayed_at(fault: FaultRecord, happened: Happened) -> int:
    """Returns the number of the record, in the shim's log, that launched the CUDA graph in which
    the work failed. Returns -1 if the log has no such record.

    Args:
        fault: A fault in a CUDA graph.
        happened: The records of the log.
    """
    before = slice(fault.record)
    launched = (happened.code[before] == LogCode.GRAPH_LAUNCH) & (happened.thread[before] == fault.thread)
    found = np.flatnonzero(launched)
    return int(found[-1]) if len(found) else -1


def _kind(raw: RawFault) -> FaultKind:
    kernel = raw[0]
    return next((kind for name, kind in _KINDS.items() if kernel.startswith(name)), FaultKind.INDEX)


def details_of(raw: RawFault) -> FaultDetails:
    """Returns the details of a fault as an object. `raw` has them as a tuple from the shim."""
    kernel, check, inputs, wrong = raw
    return FaultDetails(
        check=check,
        kernel=kernel,
        inputs=tuple(FaultInput(name, dtype, tuple(shape)) for name, dtype, shape in inputs),
        wrong=None
        if wrong is None
        else WrongValue(
            argument=wrong[0],
            value=wrong[1] if math.isfinite(wrong[1]) else str(wrong[1]),
            position=tuple(wrong[2]),
            least=wrong[3],
            bound=wrong[4],
            count=wrong[5],
            of=wrong[6],
        ),
    )
