"""By which pattern tensors differ: each is told of what has it, and none of what has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planted_numbers import PLANTED, Plain, made
from torch import Tensor

import unstall
from unstall.numbers.patterns import Pattern, pattern_of

Change = Callable[[Tensor], Tensor]


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def told(before: Tensor, after: Tensor, near: float = 0.0) -> Pattern | None:
    return pattern_of(before, after, torch.full(before.shape, near))


def changed(change: Change, *at: Any) -> Change:
    """Changes a part only."""

    def part(of: Tensor) -> Tensor:
        after = of.clone()
        after[at] = change(of[at])
        return after

    return part


def moved(of: Tensor) -> Tensor:
    after = values(*of.shape, seed=9)
    after[:, 2:] = of[:, :-2]
    return after


def reshaped(of: Tensor) -> Tensor:
    return of.reshape(64, 2, 32).transpose(0, 1).reshape(of.shape)


BASE = values(128, 64)
WHOLE: dict[str, tuple[Change, str, dict[str, Any]]] = {
    "factor": (lambda v: v * 1.25, "factor", {"factor": 1.25}),
    "offset": (lambda v: v.double() - 0.5, "offset", {"offset": -0.5}),
    "sign": (lambda v: -v, "sign", {}),
    "zero": (torch.zeros_like, "zero", {}),
    "constant": (lambda v: torch.full_like(v, 3), "constant", {"value": 3.0}),
    "not a number": (lambda v: v * float("nan"), "not finite", {}),
    "bfloat16": (lambda v: v.bfloat16(), "type", {"dtype": "bfloat16"}),
    "float16": (lambda v: v.half(), "type", {"dtype": "float16"}),
    "an index off by one": (lambda v: v.roll(1, 1), "shift", {"by": 1, "dimension": 1, "wraps": True}),
    "far": (lambda v: v.roll(-37, 0), "shift", {"by": -37, "dimension": 0, "wraps": True}),
    "in memory": (lambda v: v.roll(1), "shift", {"by": 1, "dimension": None, "wraps": True}),
    "without wrap": (moved, "shift", {"by": 2, "dimension": 1, "wraps": False}),
    "rows": (lambda v: v[values(128).argsort()], "order", {"dimension": 0, "reversed": False, "moved": 127}),
    "reverse": (lambda v: v.flip(1), "order", {"dimension": 1, "reversed": True}),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_pattern_of_all_elements_is_told_with_its_figures(case: str) -> None:
    change, kind, data = WHOLE[case]
    found = told(BASE, change(BASE))
    assert found is not None
    assert found.kind == kind
    rounded = {name: round(each, 6) if isinstance(each, float) else each for name, each in found.data.items()}
    assert rounded == data
    assert found.left <= 0.01


@pytest.mark.parametrize("case", WHOLE)
def test_rounding_hides_no_pattern(case: str) -> None:
    change, kind, _ = WHOLE[case]
    after = change(BASE).float()
    found = told(BASE, after + 1e-6 * values(128, 64, seed=5) * (kind not in ("zero", "constant")), near=1e-5)
    assert found is not None
    assert found.kind == kind


def test_dimensions_in_another_order_are_told() -> None:
    square = values(48, 48)
    assert told(square, square.t()).data == {"dimensions": [1, 0], "reshaped": False}  # type: ignore[union-attr]
    heads = values(2, 4, 16, 8)
    found = told(heads, heads.transpose(1, 2).reshape(heads.shape))
    assert found is not None
    assert found.data == {"dimensions": [0, 2, 1, 3], "reshaped": True}


DIFFERENT: Change = lambda v: values(*v.shape, seed=7)  # noqa: E731
PARTS: dict[str, tuple[Change, str]] = {
    "rows": (changed(DIFFERENT, slice(96, 128)), "Only rows 96 to 127 of dimension 0 differ (25 % of the elements)."),
    "unset rows": (
        changed(torch.zeros_like, slice(96, 128)),
        "Only rows 96 to 127 of dimension 0 differ (25 % of the elements). There, they are 0.",
    ),
    "columns": (
        changed(DIFFERENT, slice(None), slice(0, None, 4)),
        "Only every 4th column (from 0) differs (25 % of the elements).",
    ),
    "last columns": (
        changed(DIFFERENT, slice(None), slice(-3, None)),
        "Only the last 3 columns differ (4.7 % of the elements).",
    ),
    "a block": (
        changed(lambda v: v.roll(1, 1), slice(0, 32), slice(16, 48)),
        "Only rows 0 to 31 of dimension 0 and columns 16 to 47 differ (12 % of the elements). "
        "There, they are shifted by 1 along dimension 1 and wrap around.",
    ),
    "negative elements": (torch.relu, "Only 4,147 of 8,192 elements differ (51 %), here and there. There, they are 0."),
}


@pytest.mark.parametrize("case", PARTS)
def test_a_part_that_differs_is_named(case: str) -> None:
    change, sentence = PARTS[case]
    found = told(BASE, change(BASE))
    assert found is not None
    assert found.kind == "part"
    negative = f"{int((BASE < 0).sum()):,}"
    assert found.sentence == sentence.replace("4,147", negative)


shapes = st.lists(st.integers(2, 12), min_size=1, max_size=4).map(tuple)


@given(shapes, st.integers(0, 1000), st.sampled_from([1.0, 1e-3]))
def test_of_unrelated_differences_no_pattern_is_told(shape: tuple[int, ...], seed: int, size: float) -> None:
    before = values(*shape, seed=seed)
    assert told(before, before + size * values(*shape, seed=seed + 5000)) is None


@given(st.integers(0, 1000), st.integers(8, 4000))
def test_of_other_values_of_one_distribution_no_order_is_told(seed: int, count: int) -> None:
    assert told(values(count, seed=seed), values(count, seed=seed + 5000)) is None


def test_what_differs_a_bit_less_is_no_part_that_agrees() -> None:
    exact = torch.nn.functional.gelu(BASE)
    assert told(exact, torch.nn.functional.gelu(BASE, approximate="tanh"), near=1e-4) is None


PLANTED_PATTERNS = {
    "Scaled": "mul, which only this way calls: All elements are 1.0005 times as large.",
    "Shifted": "roll, which only this way calls: All elements are shifted by 1 along dimension 2 and wrap around.",
    "WrongBackward": "All elements are 1.01 times as large.",
    "Unset": "cat, which only this way calls: Only index 3 of dimension 0 differs (25 % of the elements). "
    "There, they are 0.",
    "Permuted": "flip, which only this way calls: All elements are in reverse order along dimension 1.",
    "ShiftedBackward": "roll, which only this way calls: All elements are shifted by 1 along dimension 2 and wrap "
    "around.",
    "Approximate": "",
}


@pytest.mark.parametrize("kind", [kind for kind, _ in PLANTED if kind.__name__ in PLANTED_PATTERNS])
def test_the_pattern_of_a_planted_bug_is_told(kind: type[Plain]) -> None:
    (row,) = unstall.compare_numbers(made(Plain), values(4, 12, 48, seed=3), across=[made(kind)])
    assert (row.pattern.sentence if row.pattern else "") == PLANTED_PATTERNS[kind.__name__]


def test_a_weight_with_unset_rows_is_told_and_saved() -> None:
    other = made(Plain)
    with torch.no_grad():
        other.down.weight[3:7] = 0
    found = unstall.compare_numbers(made(Plain), values(4, 12, 48, seed=3), across=[other])
    assert "Only rows 3 to 6 of dimension 0 differ (8.3 % of the elements). There," in " ".join(str(found).split())
    data = found._data()["ways"][0]["pattern"]
    assert data["kind"] == "part"
    assert data["dimensions"]["0"] == {"first": 3, "last": 6, "count": 4, "step": 1}
    assert data["within"]["kind"] == "zero"


def test_values_that_are_others_in_each_run_are_told() -> None:
    calls = []

    def unset(value: Tensor) -> Tensor:
        calls.append(1)
        return value.sin() ** len(calls)

    (row,) = unstall.compare_numbers(lambda v: v.sin() ** 9, values(64), across=[unset])
    assert row.pattern is not None
    assert row.pattern.kind == "varies"


def test_an_operator_that_explains_nothing_has_no_pattern() -> None:
    """It calls `neg` and undoes it, and the difference comes from elsewhere."""

    def other(v: Tensor, w: Tensor) -> Tensor:
        return (v.exp().neg().neg() @ w).sin() + (v @ w).cos() * 0.01

    v, w = values(32, 16), values(16, 16, seed=1)
    (row,) = unstall.compare_numbers(lambda v, w: (v.exp() @ w).sin(), v, w, across=[other])
    assert row.kind == "different"
    assert row.pattern is None


def test_of_a_large_tensor_the_first_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unstall.numbers.whole.MOST", 1000)
    (row,) = unstall.compare_numbers(torch.sin, values(500, 16), across=[lambda v: v.sin().roll(1, 1)])
    assert row.pattern is not None
    assert row.pattern.data["by"] == 1
