"""The cost of cuDNN's search for the fastest algorithm of a convolution."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

MB = 1_000_000


def search(
    images: tuple[int, ...], filters: tuple[int, ...], *, stride: int = 1, groups: int = 1, dtype: str = "float32"
) -> tuple[OperatorCost, OperatorCost]:
    """Returns the costs of searches for the algorithms of a convolution and of its gradients. Its output is as large as
    its images, or smaller by the stride."""
    out = (images[0], filters[0], *(side // stride for side in images[2:]))
    x, weight, y = (TensorSpec(dtype, sizes, contiguous_strides(sizes)) for sizes in (images, filters, out))
    padding = [side // 2 for side in filters[2:]]
    how = ([stride, stride], padding, [1, 1], False, [0, 0], groups)
    forward = Signature("cudnn::search_convolution", "", (x, weight, None, *how), (y,))
    backward = Signature(
        "cudnn::search_convolution_backward", "", (y, x, weight, None, *how, (True, True, False)), (x, weight, None)
    )
    costs = costs_of("h200")
    return costs.cost(forward), costs.cost(backward)


def workspace(cost: OperatorCost) -> float:
    ((size,), *more) = cost.temporaries
    assert all(each == (size,) for each in more)
    return size / MB


@pytest.mark.parametrize(
    ("images", "filters", "stride", "forward", "backward"),
    [  # the peaks of an H200, of shapes that had no part in the model: benchmarks/results/cudnn_search_h200.json
        ((2, 112, 48, 48), (112, 112, 3, 3), 1, 432.0, 426.4),
        ((6, 128, 14, 14), (128, 128, 3, 3), 1, 40.1, None),
        ((8, 256, 8, 8), (256, 256, 5, 5), 1, 162.3, None),
        ((4, 512, 14, 14), (512, 512, 3, 3), 2, None, 4618.0),
        ((1, 256, 80, 80), (256, 256, 7, 7), 2, None, 1164.0),
    ],
)
def test_the_largest_workspace_in_float32_is_that_of_an_fft(
    images: tuple[int, ...], filters: tuple[int, ...], stride: int, forward: float | None, backward: float | None
) -> None:
    for cost, measured in zip(search(images, filters, stride=stride), (forward, backward), strict=True):
        assert measured is None or workspace(cost) == pytest.approx(measured, rel=0.1)


def test_16_bits_need_less() -> None:
    shape = (16, 32, 64, 64), (64, 32, 3, 3)
    for half, single in zip(search(*shape, dtype="bfloat16"), search(*shape), strict=True):
        assert workspace(half) < workspace(single) / 4


def test_the_search_empties_the_cache_and_does_without_memory_that_there_is_not() -> None:
    for cost in search((16, 32, 64, 64), (64, 32, 3, 3)):
        assert cost.empties_cache
        assert cost.fallback == OperatorCost(())


def test_each_gradient_is_searched_for() -> None:
    forward, backward = search((16, 32, 64, 64), (64, 32, 3, 3))
    assert (len(forward.temporaries), len(backward.temporaries)) == (1, 2)
    assert backward.first_ns > 2 * forward.first_ns


def test_what_torch_computes_by_itself_is_not_searched_for() -> None:
    shape = (16, 32, 64, 64), (32, 1, 3, 3)
    assert search(*shape, groups=32) == (OperatorCost(()), OperatorCost(()))
    assert all(cost.first_ns for cost in search(*shape, groups=32, dtype="float16"))
