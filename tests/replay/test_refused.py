"""What is no program is refused with a sentence, the same in both engines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from replay.invented import Do, Op, program
from replay.running import Engine, with_columns, with_value

from unstall.replay.program import Code, Program


def valid() -> Program:
    return program(
        Do(Code.RECORD, stream=0),
        Do(Code.LAUNCH, stream=1, ops=[Op(5, stream=1), Op(5)]),
        Do(Code.STREAM_WAIT, stream=1, target=0),
        Do(Code.SYNC_EVENT, target=0),
        Do(Code.SYNC_STREAM, stream=1),
        Do(Code.SYNC_DEVICE),
        Do(Code.CALL, thread=1),
        Do(Code.JOIN, target=6),
        Do(Code.LAUNCH, stream=0, ops=[Op(5, engine=1, after=1)]),
        threads=2,
        devices=(0, 0),
        engines=2,
    )


def refusal(engine: Engine, program: Program) -> str:
    with pytest.raises(ValueError, match=r"\w") as refused:
        engine(program)
    return str(refused.value)


def test_the_program_of_these_tests_is_one(engine: Engine) -> None:
    assert engine(valid()).op_end.tolist() == [5, 5, 10]


@pytest.mark.parametrize(
    ("column", "row", "value", "sentence"),
    [
        ("code", 3, -1, "instruction 3: there is no code -1"),
        ("code", 3, 8, "instruction 3: there is no code 8"),
        ("thread", 6, -1, "instruction 6: thread -1 is none of the program's 2"),
        ("thread", 6, 2, "instruction 6: thread 2 is none of the program's 2"),
        ("stream", 0, -1, "instruction 0: stream -1 is none of the program's 2"),
        ("stream", 1, 2, "instruction 1: stream 2 is none of the program's 2"),
        ("stream", 2, -1, "instruction 2: stream -1 is none of the program's 2"),
        ("stream", 4, 2, "instruction 4: stream 2 is none of the program's 2"),
        ("stream", 5, -2, "instruction 5: -2 is neither a device nor -1, which is every device"),
        ("target", 2, -1, "instruction 2: its target -1 is not an earlier RECORD"),
        ("target", 2, 1, "instruction 2: its target 1 is not an earlier RECORD"),
        ("target", 3, 3, "instruction 3: its target 3 is not an earlier RECORD"),
        ("target", 3, 99, "instruction 3: its target 99 is not an earlier RECORD"),
        ("target", 7, -1, "instruction 7: its target -1 is not an earlier instruction of another thread"),
        ("target", 7, 5, "instruction 7: its target 5 is not an earlier instruction of another thread"),
        ("target", 7, 7, "instruction 7: its target 7 is not an earlier instruction of another thread"),
        ("work", 6, -1, "instruction 6: its work is negative, -1 ns"),
        ("call", 6, -9, "instruction 6: its call is negative, -9 ns"),
        ("ops", 0, -1, "instruction 0: its ops end at -1, before they begin at 0"),
        ("ops", 3, 1, "instruction 3: its ops end at 1, before they begin at 2"),
        ("ops", 1, 4, "instruction 1: its ops end at 4, and there are 3"),
        ("ops", 0, 1, "instruction 0: it has ops and is not a LAUNCH"),
        ("ops", 8, 2, "the instructions' ops end at 2, and there are 3"),
    ],
)
def test_instructions(engine: Engine, column: str, row: int, value: int, sentence: str) -> None:
    assert refusal(engine, with_value(valid(), "instructions", column, row, value)) == sentence


@pytest.mark.parametrize(
    ("column", "row", "value", "sentence"),
    [
        ("stream", 1, -1, "op 1: stream -1 is none of the program's 2"),
        ("stream", 1, 2, "op 1: stream 2 is none of the program's 2"),
        ("engine", 2, -2, "op 2: engine -2 is none of the program's 2"),
        ("engine", 2, 2, "op 2: engine 2 is none of the program's 2"),
        ("after", 2, -2, "op 2: it follows op -2, which is not an earlier one"),
        ("after", 2, 2, "op 2: it follows op 2, which is not an earlier one"),
        ("duration", 0, -1, "op 0: its duration is negative, -1 ns"),
        ("gap", 2, -7, "op 2: its gap is negative, -7 ns"),
    ],
)
def test_ops(engine: Engine, column: str, row: int, value: int, sentence: str) -> None:
    assert refusal(engine, with_value(valid(), "ops", column, row, value)) == sentence


@pytest.mark.parametrize(("column", "table"), [("latency", "instructions"), ("latency", "ops"), ("lag", "ops")])
def test_a_wait_may_end_early(engine: Engine, table: str, column: str) -> None:
    assert engine(with_value(valid(), table, column, 1, -1000)).op_end.tolist() == [5, 5, 10]


@pytest.mark.parametrize(("table", "column"), [("instructions", "latency"), ("ops", "lag"), ("ops", "duration")])
@pytest.mark.parametrize("value", [(1 << 62) + 1, (1 << 63) - 1, -(1 << 62) - 1, -(1 << 63)])
def test_times_that_could_overflow(engine: Engine, table: str, column: str, value: int) -> None:
    sentence = refusal(engine, with_value(valid(), table, column, 2, value))
    if column == "duration" and value < 0:
        assert sentence == f"op 2: its duration is negative, {value} ns"
    else:
        assert sentence == "the program's times add up to more than 2**62 ns"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("threads", -1, "threads must be from 0 to 16777216, not -1"),
        ("engines", (1 << 24) + 1, "engines must be from 0 to 16777216, not 16777217"),
        ("capacity", 0, "capacity must be from 1 to 2147483647, not 0"),
        ("capacity", 1 << 70, "capacity must be from 1 to 2147483647, not 1180591620717411303424"),
    ],
)
def test_counts(engine: Engine, field: str, value: int, sentence: str) -> None:
    assert refusal(engine, with_columns(valid(), **{field: value})) == sentence


@pytest.mark.parametrize(
    ("name", "column", "sentence"),
    [
        ("instructions_code", np.zeros(9, np.int32), "instructions.code must be one contiguous column of int8"),
        ("instructions_work", np.zeros(9), "instructions.work must be one contiguous column of int64"),
        (
            "instructions_target",
            np.zeros(18, np.int32)[::2],
            "instructions.target must be one contiguous column of int32",
        ),
        ("ops_gap", np.zeros((3, 1), np.int64), "ops.gap must be one contiguous column of int64"),
        ("ops_lag", None, "ops.lag must be one contiguous column of int64"),
        ("device_of_stream", [0, 0], "device_of_stream must be one contiguous column of int32"),
        ("instructions_ops", np.zeros(8, np.int64), "instructions.ops has 8 rows, and instructions.code has 9"),
        ("ops_after", np.zeros(4, np.int32), "ops.after has 4 rows, and ops.stream has 3"),
    ],
)
def test_columns(engine: Engine, name: str, column: Any, sentence: str) -> None:
    assert refusal(engine, with_columns(valid(), **{name: column})) == sentence


def test_of_several_faults_that_of_the_first_row_is_told(engine: Engine) -> None:
    wrong = with_value(with_value(valid(), "instructions", "code", 5, 9), "instructions", "call", 4, -1)
    assert re.match("instruction 4: its call", refusal(engine, wrong))


def test_ops_without_an_instruction(engine: Engine) -> None:
    none = program(devices=(0,))
    one = program(Do(Code.LAUNCH, stream=0, ops=[Op(1)]))
    wrong = with_columns(none, **{f"ops_{name}": getattr(one.ops, name) for name in one.ops.__struct_fields__})
    assert refusal(engine, wrong) == "the instructions' ops end at 0, and there are 1"
