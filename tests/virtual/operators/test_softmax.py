"""softmax() from halves to float32, which only CUDA has a kernel for: autocast uses it."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return told_by("softmax")


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_reads_halves_and_writes_float32(told: dict[str, Any], name: str) -> None:
    assert told[name] == [True] * 4  # wide, not wide, gradients of float16, of bfloat16


def test_softmax_writes_float32_to_an_output(told: dict[str, Any]) -> None:
    assert told["out"] is True


def test_attention_trains_under_autocast(told: dict[str, Any]) -> None:
    assert told["attention"] == [["torch.float16", True], ["torch.bfloat16", True]]
