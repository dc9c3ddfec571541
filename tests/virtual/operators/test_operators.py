"""A sample of torch's own operator tests: the whole is benchmarks/virtual_opinfo.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from processes import succeeded

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "virtual_opinfo.py"
# Parts of names: elementwise, reductions, indexing, linear algebra, layers, losses, random numbers, lists.
SAMPLE = (
    *("add", "sub", "mul", "div", "pow", "exp", "sigmoid", "where", "clamp", "sum", "mean", "var", "amax", "cumsum"),
    *("sort", "topk", "unique", "gather", "scatter", "index_put", "index_select", "masked_fill", "nonzero", "cat"),
    *("stack", "split", "einsum", "matmul", "addmm", "bmm", "linalg_svd", "linalg_inv", "linalg_cholesky", "fft_rfft"),
    *("nn_functional_softmax", "nn_functional_gelu", "nn_functional_linear", "nn_functional_conv"),
    *("nn_functional_max_pool2d", "nn_functional_interpolate", "nn_functional_embedding", "nn_functional_ctc"),
    *("nn_functional_cross_entropy", "nn_functional_layer_norm", "nn_functional_group_norm", "nn_functional_rms_norm"),
    *("nn_functional_batch_norm", "nn_functional_scaled_dot", "nn_functional_grid_sample", "nn_functional_dropout"),
    *("bernoulli", "multinomial", "cdist"),
)
FEWEST = 100


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARK), "--worker", "0", "--only", *SAMPLE]
    done = succeeded(command, timeout=900)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in told if "name" in one}


def test_operators_compute_what_the_cpu_computes(verdicts: dict[str, Any]) -> None:
    as_a_gpu = {"native_batch_norm", "_native_batch_norm_legit", "tensor_split"}
    wrong = {name: one["reason"] for name, one in verdicts.items() if one["status"] in ("differs", "error", "refused")}
    assert {name: why for name, why in wrong.items() if name not in as_a_gpu} == {}


def test_the_sample_is_no_small_one(verdicts: dict[str, Any]) -> None:
    assert len(verdicts) > FEWEST
