"""Why a difference is rounding: which sums, of how many terms, and how they compose."""

from __future__ import annotations

import re

import pytest
import torch
from planted_numbers import REORDERED, Plain, made
from torch import Tensor

import unstall
from unstall.rounding.facts import sums_of


def power(m: Tensor) -> Tensor:
    result = m
    for _ in range(5):
        result = result @ m
    return result


def reordered(m: Tensor) -> Tensor:
    order = torch.arange(len(m) - 1, -1, -1)
    result = m
    for _ in range(5):
        result = result[:, order] @ m[order]
    return result


def test_the_sixth_power_of_a_matrix_is_explained() -> None:
    m = torch.rand(500, 500, generator=torch.Generator().manual_seed(0))
    (row,) = unstall.compare_numbers(power, m, across=[reordered])
    assert row.kind == "rounding"
    assert "The first result with other bits is that of mm at test_reasons.py:" in row.sentence
    assert "about sqrt(500) = 22 roundoffs" in row.sentence
    assert "It calls 5 x mm with sums of 500 terms. Later ones take over the errors of earlier ones." in row.why
    figures = re.search(r"up to (\S+) of their size; they differ by (\S+) of it\. So it is no bug", row.why)
    assert figures is not None
    may, are = map(float, figures.groups())
    assert 1e-8 < are < may < 1e-4
    size = float(power(m).double().square().mean().sqrt())
    assert f"of size {size:.2g} (root mean square)" in row.why


@pytest.mark.parametrize("kind", REORDERED)
def test_sums_in_another_order_are_named(kind: type[Plain]) -> None:
    x = torch.randn(4, 12, 48, generator=torch.Generator().manual_seed(3))
    (row,) = unstall.compare_numbers(made(Plain), x, across=[made(kind)])
    assert row.kind == "rounding"
    assert "Each of its elements adds up 48" in row.sentence


def test_a_function_without_sums_has_no_reason() -> None:
    (row,) = unstall.compare_numbers(torch.exp, torch.randn(64), across=["float64"])
    assert row.sentence.endswith("which is rounded differently.")
    assert not row.why


def test_the_terms_of_a_reduction_are_all_of_them() -> None:
    assert sums_of("sum", (torch.ones(1000, 1000),)) == 1_000_000
    assert sums_of("mm", (torch.ones(2, 300), torch.ones(300, 4))) == 300
    assert sums_of("exp", (torch.ones(8),)) == 0
    assert sums_of("normal_", (torch.ones(8),)) == 0
