"""Which operators programs reach below autograd, with which shapes, strides and dtypes: as recorded on an H200.

h200_operators.json.gz was written by programs/dispatched.py on one with torch 2.11 and cuDNN 9.19.
"""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from virtual.operators.running import told_by

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parent / "h200_operators.json.gz"
# Of Python, not of the device.
NOT_OPERATORS = ("profiler.", "detach.", "lift_fresh.")
ALLOCATED = 512


@functools.cache
def recorded() -> dict[str, Any]:
    cases: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))["cases"]
    return cases


def rounded(found: re.Match[str]) -> str:
    return f"u8[{-(-int(found[1]) // ALLOCATED) * ALLOCATED}]"


def operators(case: dict[str, Any]) -> list[str]:
    """Rows in no order, as autograd's is not the device's; cuDNN's buffers to what the allocator rounds them to."""
    rows = [f"{row[0]} {json.dumps(row[1])}" for row in case["rows"] if not row[0].startswith(NOT_OPERATORS)]
    return sorted(re.sub(r"u8\[(\d+)\]", rounded, row) for row in rows)


def differing(kind: str) -> dict[str, Any]:
    here = told_by("dispatched")
    names = [name for name in recorded() if name.startswith(kind)]
    assert len(names) > 1
    return {
        name: [here[name]["error"], recorded()[name]["error"]]
        for name in names
        if bool(here[name]["error"]) != bool(recorded()[name]["error"])
        or (not here[name]["error"] and operators(here[name]) != operators(recorded()[name]))
    }


@pytest.mark.parametrize("kind", ["sdpa/", "conv/", "norm/", "rnn/", "optim/", "amp/"])
def test_a_program_reaches_the_operators_that_an_h200_reached(kind: str) -> None:
    assert differing(kind) == {}


def test_half_precision_attention_is_cudnn_s_and_full_precision_memory_efficient() -> None:
    here = told_by("dispatched")
    for dtype, kernel in (("bf16", "cudnn"), ("f16", "cudnn"), ("f32", "efficient")):
        reached = {row[0] for row in here[f"sdpa/{dtype}/train/causal"]["rows"]}
        assert f"_scaled_dot_product_{kernel}_attention.default" in reached
        assert f"_scaled_dot_product_{kernel}_attention_backward.default" in reached


def test_attention_that_no_kernel_takes_is_refused_as_cuda_does() -> None:
    assert told_by("dispatched")["sdpa/f32/infer/flash"]["error"] == (
        "RuntimeError: No available kernel. Aborting execution."
    )
