"""The classes of planted programs on a GPU."""

from __future__ import annotations

import linecache

import pytest
import torch
from planted_numbers_gpu import CASES, Case, overwritten_early, read_early, set_for

import unstall

pytestmark = pytest.mark.gpu
BY_NAME = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@BY_NAME
def test_a_planted_program_has_its_class(case: Case) -> None:
    with set_for(case):
        found = unstall.compare_numbers(case.fn, *case.inputs(), across=[case.way])
    assert found[case.way].kind == case.kind, found
    assert [word for word in case.says if word not in found[case.way].sentence] == []


@pytest.mark.parametrize("fn", [read_early, overwritten_early])
@pytest.mark.parametrize("way", ["serial", "float64"])
def test_a_race_has_both_lines(fn: object, way: str) -> None:
    assert callable(fn)
    row = unstall.compare_numbers(fn, torch.randn(1 << 20, device="cuda"), across=[way])[way]
    assert row.kind == "race", row.sentence
    assert row.race is not None
    sides = {"earlier": row.race.earlier.where, "later": row.race.later.where}
    for name, at in sides.items():
        assert at is not None
        assert linecache.getline(at.file, at.line).strip().endswith(f"# planted: {name}")


def test_no_switch_of_the_program_is_left_changed() -> None:
    case = next(case for case in CASES if case.kind == "TF32")
    with set_for(case):
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        unstall.compare_numbers(case.fn, *case.inputs(), across=[case.way])
        assert before == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)
    assert torch.get_deterministic_debug_mode() == 0
