"""Models of transformers train on the virtual GPU as on the CPU: two steps of AdamW."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow

# Where keys have fewer heads than queries, a GPU takes other kernels for float32 than the CPU.
ROUNDING = 1e-5


@pytest.mark.parametrize("model", ["gpt2", "bert", "t5", "vit", "resnet"])
def test_a_model_trains_as_on_the_cpu_bit_for_bit(model: str) -> None:
    told = told_by("models")[model]
    assert {part: found["equal"] for part, found in told.items()} == {part: all_of(told, part) for part in told}


def all_of(told: dict[str, Any], part: str) -> int:
    return int(told[part]["of"])


def test_a_model_with_grouped_heads_trains_as_on_the_cpu_but_for_rounding() -> None:
    assert max(found["largest"] for found in told_by("models")["llama"].values()) < ROUNDING
