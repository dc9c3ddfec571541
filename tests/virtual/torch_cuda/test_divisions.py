"""Integers divided by zero: CUDA gives a value, and the CPU's kernels, which compute here, raise. The values are an
H200's with torch 2.11.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from processes import succeeded
from virtual.torch_cuda.running import HERE

_LOWER = 2**32 - 1
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_REMAINDERS = ("%", "fmod", "out")


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    programs = HERE / "programs"
    done = succeeded([sys.executable, str(programs / "divisions.py")], cwd=programs)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("by", ["0", "zeros"])
def test_all_bits_of_a_quotient_by_zero_are_set_and_quotients_of_negative_integers_are_rounded_down(
    told: dict[str, Any], by: str
) -> None:
    for way in ("trunc", *_REMAINDERS):
        assert told[f"int32 {way} {by}"] == [-1] * 5
    for way in ("floor", "floor_"):
        assert told[f"int32 {way} {by}"] == [-2, -2, -1, -1, -1]
    for way in ("trunc", "floor", "floor_", *_REMAINDERS):
        assert told[f"uint8 {way} {by}"] == [255] * 4


@pytest.mark.parametrize("by", ["0", "zeros"])
def test_small_integers_of_64_bits_are_divided_as_32_bits(told: dict[str, Any], by: str) -> None:
    for way in ("trunc", *_REMAINDERS):
        assert told[f"int64 {way} {by}"] == [-1, -1, _LOWER, _LOWER, -1]
    for way in ("floor", "floor_"):
        assert told[f"int64 {way} {by}"] == [-2, -2, _LOWER, _LOWER, -1]


def test_the_smallest_integer_divided_by_minus_one_is_itself_and_does_not_end_the_process(told: dict[str, Any]) -> None:
    for way in ("trunc", "floor", "floor_"):
        assert told[f"int64 {way} -1"] == [_SMALLEST, 7, 0, -7, -_LARGEST]
    for way in _REMAINDERS:
        assert told[f"int64 {way} -1"] == [0] * 5


def test_the_other_elements_are_divided_as_ever(told: dict[str, Any]) -> None:
    assert told["mixed"] == [[4, _LOWER, 9]]
    assert told["number"] == [_LOWER, 3]
    assert told["bool"] == [_LOWER]
    assert [f"{each}" for each in told["true"]] == ["inf", "nan"]


def test_a_graph_divides_the_values_that_are_there_when_it_is_replayed(told: dict[str, Any]) -> None:
    assert told["replayed"] == [_LOWER, 2]


def test_the_report_says_that_the_result_is_undefined(told: dict[str, Any]) -> None:
    (note,) = told["note"]
    assert note.startswith("integers are divided by zero, at divisions.py:12, divisions.py:13, ")
    assert note.endswith("CUDA raises no error, and leaves the result undefined. Here it is an H200's")
