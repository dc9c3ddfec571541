"""Lists of tensors are cut as torch's multi_tensor_apply cuts them. The counts are an H200's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.virtual.costs.families.lists import launches

_ONE = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>, BinaryOp>"
_THREE = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<3>, PointwiseOp>"
_SCALARS = "void at::native::multi_tensor_apply_kernel<at::native::TensorListScalarListMetadata<float, 3>, PointwiseOp>"


@pytest.mark.parametrize(
    ("kernel", "sizes", "count"),
    [
        (_ONE, [65536] * 12, 1),
        (_ONE, [768] * 200, 2),
        (_ONE, [256] * 400, 4),
        (_ONE, [1 << 19] * 200, 5),
        (_THREE, [1 << 19] * 200, 5),
        (_THREE, [256] * 400, 9),
        (_SCALARS, [256] * 400, 9),
        (_ONE, [1 << 25], 2),
    ],
)
def test_as_many_launches_as_were_measured(kernel: str, sizes: list[int], count: int) -> None:
    assert len(launches(kernel, sizes) or []) == count


@given(st.lists(st.integers(0, 1 << 22), min_size=1, max_size=200).filter(any))
def test_the_shares_of_the_launches_add_up_to_the_whole(sizes: list[int]) -> None:
    assert sum(launches(_THREE, sizes) or []) == pytest.approx(1.0)


def test_a_kernel_of_another_kind_is_not_cut() -> None:
    assert launches("void reduce_kernel<512, 1>", [1, 2]) is None
