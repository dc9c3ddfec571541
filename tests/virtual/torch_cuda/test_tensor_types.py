"""torch.cuda.FloatTensor and the others, which old programs use."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.torch_cuda.running import facts

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return facts("tensor_types")


@pytest.mark.parametrize("name", ["FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor"])
def test_a_type_makes_tensors_on_the_device(told: dict[str, Any], name: str) -> None:
    assert told[name] == [f"torch.cuda.{name}", [1, 0, 2], True, False, True]


def test_types_take_sizes_and_convert(told: dict[str, Any]) -> None:
    assert told["BoolTensor"][1] == [True, False, True]
    assert told["by sizes"] == [2, 3]
    assert told["type()"] == "torch.cuda.HalfTensor"


def test_a_type_can_be_the_default(told: dict[str, Any]) -> None:
    assert told["default"] == ["torch.cuda.DoubleTensor"] * 3
    assert told["by name"] == ["torch.cuda.FloatTensor", [1.0, 1.0]]
    assert told["kind after that"] is True
    assert told["back"] == "torch.FloatTensor"


def test_a_sparse_type_cannot(told: dict[str, Any]) -> None:
    assert "not available" in told["sparse"]
