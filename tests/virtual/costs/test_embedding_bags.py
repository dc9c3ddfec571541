"""The gradient of embedding bags: sorted, by as many kernels as an H100 ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.measured_costs import MeasuredCosts
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "embedding_bags_h100.json"
CALLS = json.loads(MEASURED.read_text())["calls"]
SUM, MEAN, MAX = 0, 1, 2


def spec(dtype: str, *sizes: int) -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def costs() -> MeasuredCosts:
    gpu = gpu_named("h100")
    return MeasuredCosts(gpu, gpu.measured)


def backward(bags: int, each: int, mode: int, rows: int = 50_000, width: int = 32) -> Signature:
    indices, offsets = spec("int64", bags * each), spec("int64", bags)
    gradient, largest = spec("float32", bags, width), spec("int64", 0)
    inputs = (gradient, indices, offsets, indices, offsets, largest, rows, False, mode, False, None, -1)
    return Signature("aten::_embedding_bag_backward", "", inputs, (spec("float32", rows, width),))


@pytest.mark.parametrize(
    "call",
    [call for call in CALLS if call["mode"] in ("sum", "mean")],
    ids=lambda call: f"{call['bags']}x{call['each']} {call['mode']} {call['rows']}",
)
def test_sums_and_means_sort_their_indices(call: dict[str, Any]) -> None:
    mode = SUM if call["mode"] == "sum" else MEAN
    cost = costs().cost(backward(call["bags"], call["each"], mode, call["rows"], call["width"]))
    measured = [us for _, us in call["kernels"]]
    assert len(cost.kernels) == len(measured)
    # Each index of these is alone in its row but for chance; the measured calls of the table repeat theirs more often.
    assert sum(kernel.duration_ns for kernel in cost.kernels) / 1e3 == pytest.approx(sum(measured), rel=0.4)


def test_the_gradient_of_the_largest_is_a_guess_that_sorts_nothing() -> None:
    with pytest.raises(NotImplementedError):
        costs().cost(backward(512, 4, MAX))
    assert len(costs().guess(backward(512, 4, MAX)).kernels) == 1


def test_sorting_indices_takes_the_host_as_long_as_an_index_put_that_accumulates() -> None:
    gpu = gpu_named("h200")
    measured = gpu.file.operators_host_ns["_index_put_impl_"]
    assert costs().cost(backward(512, 4, SUM)).host_ns == round(gpu.host_pace * measured)
