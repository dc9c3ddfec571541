"""Converts faults into the timeline's table `Faults`. The faults refer to log records by number. The table refers to
host events by row.
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
"""The kind of a fault, by the beginning of the kernel's name. Kernels with other names check indices."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the timeline's table `Faults`, before log records are converted to host events. `call`, `replay` and
    `noticed` are numbers of log records. Each of them is -1 if there is no record.
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
    """Returns the timeline's table of faults.

    Args:
        log: The faults.
        happened: The records of the log.
        host_row: For each log record, an index into the table `Host`. It is the index of the record's call, or of the
            operator that encloses the record. It is -1 if there is neither.
        stream_row: Returns the index of a stream in the table `Streams`, given (device, stream).
        text: Returns the index of a text in the timeline's strings.
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
    """Returns a row for each assertion that failed in a kernel. If a failed assertion ended the program, `ended` is
    True for the failed assertion whose error Python got last.
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
    """Returns one row for the failed memory request that ended the program. Returns an empty list if no failed memory
    request ended the program.
    """
    refusal = log.refusal
    if log.ended != Ended.MEMORY or refusal is None:
        return []
    details = FaultDetails(check=str(refusal.error))
    return [_Row(FaultKind.MEMORY, refusal.record, -1, -1, refusal.device, -1, ended=True, details=details)]


def captured_at(fault: FaultRecord, happened: Happened) -> int:
    """Returns the number of the captured launch's log record. Returns -1 if the log does not have this record."""
    found = np.flatnonzero((happened.code == LogCode.LAUNCH) & (happened.a == fault.node))
    return int(found[0]) if len(found) else -1


def replayed_at(fault: FaultRecord, happened: Happened) -> int:
    """Returns the number of the log record of the graph launch in which the captured work fails. Returns -1 if the log
    does not have this record.
    """
    before = slice(fault.record)
    launched = (happened.code[before] == LogCode.GRAPH_LAUNCH) & (happened.thread[before] == fault.thread)
    found = np.flatnonzero(launched)
    return int(found[-1]) if len(found) else -1


def _kind(raw: RawFault) -> FaultKind:
    kernel = raw[0]
    return next((kind for name, kind in _KINDS.items() if kernel.startswith(name)), FaultKind.INDEX)


def details_of(raw: RawFault) -> FaultDetails:
    """Converts a tuple from the shim into the details of a fault."""
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
