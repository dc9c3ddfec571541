"""Faults as a table of the timeline: rows of host events in place of records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from unstall.timeline.columns import I32, FaultKind, Faults
from unstall.timeline.fault_details import FaultDetails, FaultInput, WrongValue, packed
from unstall.virtual.faults.fault_log import FaultRecord
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
"""By the beginning of the kernel's name; all others check indices."""


def faults_table(
    faults: Sequence[FaultRecord],
    happened: Happened,
    host_row: I32,
    stream_row: Callable[[int, int], int],
    text: Callable[[str], int],
    *,
    ended: bool,
) -> Faults:
    """Returns the table of faults. `host_row` has, for each record, the timeline's row of its call or of the enclosing
    operator, or -1. `stream_row` returns the row of Streams for (device, stream), `text` the index of a text.

    `ended`: the program ended by the error that was noticed last.
    """

    def row_of(record: int) -> int:
        return int(host_row[record]) if record >= 0 else -1

    def column(values: Sequence[int], dtype: type[np.generic]) -> np.ndarray:
        return np.array(values, dtype=dtype)

    last = max((fault.noticed for fault in faults), default=-1) if ended else -1
    return Faults(
        kind=column([_kind(fault.raw) for fault in faults], np.int8),
        call=column([row_of(_captured(fault, happened) if fault.node else fault.record) for fault in faults], np.int32),
        replay=column([row_of(_replay(fault, happened)) if fault.node else -1 for fault in faults], np.int32),
        noticed=column([row_of(fault.noticed) for fault in faults], np.int32),
        device=column([fault.device for fault in faults], np.int32),
        stream=column([stream_row(fault.device, fault.stream) for fault in faults], np.int32),
        iteration=column([-1] * len(faults), np.int64),
        ended=column([fault.noticed == last != -1 for fault in faults], np.bool_),
        details=column([text(packed(details_of(fault.raw))) for fault in faults], np.int32),
    )


def _captured(fault: FaultRecord, happened: Happened) -> int:
    """Returns the record of the captured LAUNCH that fails, or -1."""
    found = np.flatnonzero((happened.code == LogCode.LAUNCH) & (happened.a == fault.node))
    return int(found[0]) if len(found) else -1


def _replay(fault: FaultRecord, happened: Happened) -> int:
    """Returns the record of the graph launch in which captured work fails, or -1."""
    before = slice(fault.record)
    launched = (happened.code[before] == LogCode.GRAPH_LAUNCH) & (happened.thread[before] == fault.thread)
    found = np.flatnonzero(launched)
    return int(found[-1]) if len(found) else -1


def _kind(raw: RawFault) -> FaultKind:
    kernel = raw[0]
    return next((kind for name, kind in _KINDS.items() if kernel.startswith(name)), FaultKind.INDEX)


def details_of(raw: RawFault) -> FaultDetails:
    """Returns what the shim found out."""
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
