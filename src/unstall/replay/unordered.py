"""Collects instructions of a program that are not yet sorted into program order."""

from __future__ import annotations

import msgspec
import numpy as np

from unstall.timeline.columns import I8, I32, I64, Timeline


class InstructionRows(msgspec.Struct, eq=False):
    """Instructions that are not sorted yet, one row each. The columns are those of
    `program.Instructions`. Times are in ns.
    """

    time: I64  # start of the call
    code: I8
    host: I64
    stream: I32
    record: I64  # host row of the record it waits for, or -1
    call: I64
    latency: I64
    ops: I64  # number of ops


def rows_of(timeline: Timeline, host: I64, code: int | I8, **columns: int | I64 | I32) -> InstructionRows:
    """Returns one instruction of a program for each of the given host events.

    Args:
        timeline: The run.
        host: The host event of each instruction, as a row of `timeline.host`; -1 for an instruction
            without one.
        code: The code of each instruction as a column, or one code for all instructions.
        columns: Other columns of the instructions. Missing columns get default values. `time` is
            required if `host` contains -1.
    """
    count = len(host)

    def filled(values: int | I64 | I32 | I8, dtype: type) -> np.ndarray:
        if isinstance(values, np.ndarray):
            return values.astype(dtype, copy=False)
        return np.full(count, values, dtype)

    def column(name: str, default: int, dtype: type) -> np.ndarray:
        return filled(columns.get(name, default), dtype)

    time = timeline.host.start[np.maximum(host, 0)] if "time" not in columns else column("time", 0, np.int64)
    return InstructionRows(
        time,
        filled(code, np.int8),
        host,
        column("stream", -1, np.int32),
        column("record", -1, np.int64),
        column("call", 0, np.int64),
        column("latency", 0, np.int64),
        column("ops", 0, np.int64),
    )
