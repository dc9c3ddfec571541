"""The bytecode between two places of a function: the shortest path, without what jumps skip."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from unstall.virtual.simulation.bytecode_paths import units_between


def _calls(code: CodeType) -> dict[str, int]:
    """Returns the offset of the instruction that loads each global name."""
    return {str(each.argval): each.offset for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}


def first(*_: object) -> Any: ...
def skipped(*_: object) -> Any: ...
def last(*_: object) -> Any: ...


def straight() -> None:
    first()
    skipped()
    last()


def branches(no: bool) -> None:
    first()
    if no:
        skipped(1, 2, 3, 4, 5, 6, 7, 8)
        skipped(1, 2, 3, 4, 5, 6, 7, 8)
    last()


def loops() -> None:
    for each in range(9):
        first(each)
        if each:
            skipped(1, 2, 3, 4, 5, 6, 7, 8)
        last(each)


def handles() -> None:
    try:
        first()
    except ValueError:
        last()


def test_in_straight_code_it_is_the_distance() -> None:
    at = _calls(straight.__code__)
    assert units_between(straight.__code__, at["first"], at["last"]) == (at["last"] - at["first"]) // 2
    assert units_between(straight.__code__, -1, at["last"]) == at["last"] // 2


def test_what_a_branch_skips_does_not_count() -> None:
    at = _calls(branches.__code__)
    assert units_between(branches.__code__, at["first"], at["last"]) < (at["last"] - at["first"]) // 4


def test_the_next_round_of_a_loop_passes_its_head_and_not_its_body() -> None:
    code, at = loops.__code__, _calls(loops.__code__)
    again = units_between(code, at["last"], at["first"])
    assert 0 < again < (at["last"] - at["first"]) // 2


@pytest.mark.parametrize("function", [straight, branches, loops, handles])
def test_every_place_is_reached_in_no_more_than_the_code_has(function: Callable[..., object]) -> None:
    code = function.__code__
    places = [each.offset for each in dis.get_instructions(code)]
    for start in places:
        for end in places:
            units = units_between(code, start, end)
            assert 0 <= units <= len(code.co_code) // 2
            assert (units == 0) == (start == end)


def test_a_place_in_a_handler_counts_by_its_distance() -> None:
    at = _calls(handles.__code__)
    assert units_between(handles.__code__, at["first"], at["last"]) == (at["last"] - at["first"]) // 2
