"""The gradient of embedding bags: sorted, by as many kernels as an H100 ran."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.answers import MeasuredCosts
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

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
    ("bags", "each", "kernels", "us"), [(64, 4, 12, 31.5), (512, 4, 12, 36.3), (4096, 8, 31, 127.5)]
)
@pytest.mark.parametrize("mode", [SUM, MEAN])
def test_sums_and_means_sort_their_indices(bags: int, each: int, kernels: int, us: float, mode: int) -> None:
    cost = costs().cost(backward(bags, each, mode))
    assert len(cost.kernels) == kernels
    assert sum(kernel.duration_ns for kernel in cost.kernels) / 1e3 == pytest.approx(us, rel=0.4)


def test_the_gradient_of_the_largest_sorts_nothing() -> None:
    cost = costs().cost(backward(512, 4, MAX))
    assert not any("Sort" in kernel.name for kernel in cost.kernels)
