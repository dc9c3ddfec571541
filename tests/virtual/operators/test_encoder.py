"""The fast path of nn.TransformerEncoderLayer in inference, beside an H200 (benchmarks/results/operators_h200.json)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded
from virtual.operators.running import HERE

pytestmark = pytest.mark.slow
REAL = json.loads((Path(__file__).parents[3] / "benchmarks/results/operators_h200.json").read_text())[0]["calls"]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    program = str(HERE / "programs" / "encoder.py")
    done = succeeded([sys.executable, "-m", "unstall.virtual", "--gpu", "h200", program], timeout=600)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_it_computes_what_the_cpu_does(told: dict[str, Any]) -> None:
    assert told["differences"] == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("bare", "encoder layer"),
        ("causal", "encoder layer, causal"),
        ("attention", "attention"),
        ("weights", "attention, weights"),
    ],
)
def test_it_runs_the_kernels_of_a_gpu_in_their_time_and_memory(told: dict[str, Any], name: str, call: str) -> None:
    real = REAL[f"transformers: {call} float32 32x128x512"]
    assert told[name]["kernels"] == real["kernels"]
    assert told[name]["peak"] == pytest.approx(real["peak"], abs=1 << 20)  # the rest of a block that is not split
    assert told[name]["us"] == pytest.approx(real["device_us"], rel=0.15)
