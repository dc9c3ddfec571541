"""Which operators of two runs belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from unstall.rounding import matching
from unstall.rounding.matching import matched
from unstall.rounding.operators import Place
from unstall.rounding.samples import Seen


def run_of(names: Sequence[tuple[str, str]]) -> list[Seen]:
    """Operators by name, each with the text of its line."""
    return [
        Seen("operator", name, Place("a.py", 1, "f", text=text), (2,), torch.float32, np.zeros(2))
        for name, text in names
    ]


STEP = [("mm", "y = x @ w"), ("mul", "y = y * 2"), ("sum", "y.sum()")]


def test_an_operator_more_in_a_step_leaves_the_others_of_all_steps_together() -> None:
    before = run_of(STEP * 3)
    after = run_of([*STEP, STEP[0], ("mul", "y = y * 2 * 1.01"), ("mul", "y = y * 2 * 1.01"), STEP[2], *STEP])
    pairs = list(matched(before, after, lambda one, other: False))
    assert [pair for pair in pairs if pair[0] not in (4,)] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (5, 6),
        (6, 7),
        (7, 8),
        (8, 9),
    ]


def test_lines_that_have_other_texts_are_matched_by_their_operators() -> None:
    before, after = run_of(STEP), run_of([(name, f"{text}  # other") for name, text in STEP])
    assert list(matched(before, after, lambda one, other: False)) == [(0, 0), (1, 1), (2, 2)]


def test_a_search_that_would_take_too_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    before = run_of([("exp", "a"), *[("mm", "b"), ("mul", "b")] * 20])
    after = run_of([("exp", "a"), ("neg", "c"), *[("mm", "d"), ("mul", "d")] * 20])
    assert len(list(matched(before, after, lambda one, other: False))) == 41
    monkeypatch.setattr(matching, "_LARGEST", 100)
    assert list(matched(before, after, lambda one, other: False)) == [(0, 0)]
