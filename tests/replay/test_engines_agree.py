"""The C engine and its twin in Python say the same of anything: times to the nanosecond, or why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace
from profiles import examples
from replay.invented import programs, random_program
from replay.running import Engine, with_columns

from unstall.replay.engine import ENGINES
from unstall.replay.program import Program

pytestmark = pytest.mark.skipif("c" not in ENGINES, reason="the C engine is not built: there was no C compiler")

COLUMNS = [
    *(f"instructions_{name}" for name in ("code", "thread", "stream", "target", "work", "call", "latency", "ops")),
    *(f"ops_{name}" for name in ("stream", "engine", "after", "duration", "latency", "gap", "lag")),
    "device_of_stream",
]


def outcome(engine: Engine, program: Program) -> Any:
    try:
        return [times.tolist() for times in astuple(engine(program))]
    except (ValueError, TypeError) as error:
        return type(error), str(error)


def column_of(program: Program, name: str) -> Any:
    table, _, column = name.partition("_")
    return program.device_of_stream if name == "device_of_stream" else getattr(getattr(program, table), column)


@examples(150)
@given(program=programs())
def test_on_any_program(program: Program) -> None:
    assert outcome(ENGINES["c"], program) == outcome(ENGINES["python"], program)


@pytest.mark.parametrize("capacity", [1, 7, 1022])
@pytest.mark.parametrize("streams", [2, 300])
def test_on_a_long_program(streams: int, capacity: int) -> None:
    program = random_program(10_000, seed=streams + capacity, streams=streams, capacity=capacity)
    times = outcome(ENGINES["c"], program)
    assert times == outcome(ENGINES["python"], program)
    assert len(times[0]) == 10_000


@examples(150)
@given(data=st.data(), program=programs())
def test_on_columns_that_hold_anything(data: st.DataObject, program: Program) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(COLUMNS))
        column = column_of(program, name).copy()
        if len(column):
            limits = np.iinfo(column.dtype)
            few = st.integers(-3, 9)
            values = few | st.sampled_from([limits.min, limits.max, limits.max // 2 + 1, limits.min // 2])
            column[data.draw(st.integers(0, len(column) - 1))] = data.draw(values)
        program = with_columns(program, **{name: column})
    assert outcome(ENGINES["c"], program) == outcome(ENGINES["python"], program)


def _unaligned(column: Any) -> Any:
    room = np.zeros(column.nbytes + 1, dtype=np.uint8)
    return room[1:].view(column.dtype) if len(column) else column


SPOILT = {
    "none": lambda column: None,
    "a list": lambda column: column.tolist(),
    "bytes": lambda column: column.tobytes(),
    "one row less": lambda column: column[:-1],
    "one row more": lambda column: np.append(column, column[:1]).astype(column.dtype),
    "no rows": lambda column: column[:0],
    "every other byte": lambda column: np.repeat(column, 2)[::2],
    "backwards": lambda column: column[::-1],
    "a number": lambda column: column.dtype.type(0),
    "a table": lambda column: column.reshape(1, -1),
    "a column of a table": lambda column: np.repeat(column, 2).reshape(-1, 2)[:, 0],
    "floats": lambda column: column.astype(np.float64),
    "float32": lambda column: column.astype(np.float32),
    "without a sign": lambda column: column.view(column.dtype.str.replace("i", "u")),
    "int16": lambda column: column.astype(np.int16),
    "int64": lambda column: column.astype(np.int64),
    "other byte order": lambda column: column.astype(column.dtype.newbyteorder()),
    "times": lambda column: column.astype("m8[ns]"),
    "objects": lambda column: column.astype(object),
    "records": lambda column: column.view([("x", column.dtype)]),
    "unaligned": _unaligned,
}


@examples(100)
@given(
    program=programs(),
    spoilt=st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(sorted(SPOILT)), min_size=1, max_size=3),
)
def test_on_columns_that_are_none(program: Program, spoilt: dict[str, str]) -> None:
    columns = {name: SPOILT[how](column_of(program, name)) for name, how in spoilt.items()}
    wrong = with_columns(program, **columns)
    assert outcome(ENGINES["c"], wrong) == outcome(ENGINES["python"], wrong)


@given(program=programs())
def test_on_columns_that_cannot_be_written(program: Program) -> None:
    locked = with_columns(program, **{name: column_of(program, name).copy() for name in COLUMNS})
    for name in COLUMNS:
        column_of(locked, name).flags.writeable = False
    assert outcome(ENGINES["c"], locked) == outcome(ENGINES["python"], program)


@pytest.mark.parametrize("field", ["threads", "engines", "capacity"])
@pytest.mark.parametrize(
    "value", [-1, 0, 1, np.int64(3), True, (1 << 24) + 1, 1 << 31, 1 << 63, -(1 << 70), 1.5, "2", None]
)
def test_on_counts_that_are_none(field: str, value: Any) -> None:
    program = replace(random_program(50), **{field: value})
    assert outcome(ENGINES["c"], program) == outcome(ENGINES["python"], program)
