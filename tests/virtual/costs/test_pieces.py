"""Calls that CUDA makes in several pieces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unstall.virtual.costs.convolution import in_one_format, without_bias
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import OperatorCost
from unstall.virtual.costs.pieces import pieces
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _nhwc(*sizes: int) -> TensorSpec:
    _, channels, height, width = sizes
    return TensorSpec("float32", sizes, (channels * height * width, 1, channels * width, channels))


def _names(signature: Signature) -> list[str]:
    return [piece.signature.name.removeprefix("aten::") for piece in pieces(signature)]


def _taken(cost: OperatorCost) -> tuple[int, ...]:
    """Temporary allocations, of all passes."""
    return tuple(size for sizes in cost.temporaries for size in sizes)


def _placing(indices: int, count: int, unsafe: bool) -> Signature:
    index = _tensor(count, dtype="int64")
    target, values = _tensor(169, 6), _tensor(count, 6)
    return Signature("aten::_index_put_impl_", "", (target, (index,) * indices, values, True, unsafe), (target,))


def _convolution(bias: TensorSpec | None, x: TensorSpec, groups: int = 1) -> Signature:
    out = _tensor(x.sizes[0], 64, *x.sizes[2:])
    weight = _tensor(64, x.sizes[1] // groups, 3, 3)
    return Signature("aten::convolution", "", (x, weight, bias, (1, 1), (1, 1), (1, 1), False, (0, 0), groups), (out,))


@pytest.mark.parametrize("name", ["sum", "cumsum"])
@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_a_sum_of_small_integers_converts_them_first(name: str, dtype: str) -> None:
    x = _tensor(8, 160, dtype=dtype)

    copy, summed = pieces(Signature(f"aten::{name}", "", (x, 1, None), (_tensor(8, 160, dtype="int64"),)))

    assert copy.signature.name == "aten::copy_"
    assert copy.holds == (8 * 160 * 8,)
    assert summed.signature.tensors[0].dtype == "int64"


def test_few_values_are_looked_for_by_comparing_and_many_by_sorting() -> None:
    def looked_for(elements: int, values: int) -> list[str]:
        x, wanted = _tensor(elements, dtype="int64"), _tensor(values, dtype="int64")
        return _names(Signature("aten::isin", "Tensor_Tensor", (x, wanted), (_tensor(elements, dtype="bool"),)))

    compared = ["fill_", "eq", "any", "copy_"]
    assert looked_for(4, 1) == looked_for(4096, 33 - 1) == compared
    assert looked_for(4096, 34) == looked_for(4, 13) == ["isin"]


def test_a_sum_of_halves_is_not_converted() -> None:
    x = _tensor(8, 160, dtype="bfloat16")

    assert _names(Signature("aten::sum", "dim_IntList", (x, (1,), False, None), (_tensor(8),))) == ["sum"]


def test_a_cumulated_sum_of_halves_is() -> None:
    x = _tensor(8, 160, dtype="bfloat16")

    assert _names(Signature("aten::cumsum", "", (x, 1, None), (_tensor(8, 160),))) == ["copy_", "cumsum"]


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_a_softmax_of_what_does_not_lie_side_by_side_copies_it(name: str) -> None:
    x = TensorSpec("float32", (8, 64), (1, 8))

    assert _names(Signature(f"aten::{name}", "", (x, 1, False), (_tensor(8, 64),))) == ["copy_", name]


def test_a_factor_with_neither_rows_nor_columns_side_by_side_is_copied() -> None:
    odd = TensorSpec("float32", (8, 64, 32), (8192, 128, 4))

    assert _names(Signature("aten::bmm", "", (odd, _tensor(8, 32, 16)), (_tensor(8, 64, 16),))) == ["copy_", "bmm"]


def test_a_transposed_factor_is_not() -> None:
    turned = TensorSpec("float32", (8, 64, 32), (2048, 1, 64))

    assert _names(Signature("aten::bmm", "", (turned, _tensor(8, 32, 16)), (_tensor(8, 64, 16),))) == ["bmm"]


def test_a_second_index_is_wrapped_scaled_and_added() -> None:
    assert _names(_placing(2, 100, unsafe=True)) == ["remainder", "mul", "add_", "_index_put_impl_"]


def test_indices_that_autograd_gives_are_not_checked_again() -> None:
    """Each check is an extreme, a comparison and an assert."""
    costs = costs_of("h200")
    checked, trusted = (costs.cost(_placing(1, 2000, unsafe)) for unsafe in (False, True))

    assert sum("_assert_async" in kernel.name for kernel in checked.kernels) == 2
    assert len(checked.kernels) - len(trusted.kernels) == 6
    assert len(_taken(checked)) - len(_taken(trusted)) == 4


def test_indices_beyond_one_tile_are_sorted_in_sweeps() -> None:
    costs = costs_of("h200")
    names = [{kernel.name for kernel in costs.cost(_placing(1, count, unsafe=True)).kernels} for count in (2304, 2305)]

    assert ["SingleTile" in "".join(some) for some in names] == [True, False]


def test_a_grouped_convolution_adds_its_bias_in_a_kernel_of_its_own() -> None:
    """None with a bias was measured."""
    costs = costs_of("h200")
    x = _tensor(8, 64, 28, 28)
    bare, biased = (costs.cost(_convolution(bias, x, groups=4)) for bias in (None, _tensor(64)))

    assert len(biased.kernels) == len(bare.kernels) + 1


def test_a_biass_gradient_is_a_sum_over_all_but_its_channels() -> None:
    gradient, x, weight = _tensor(8, 64, 14, 14), _tensor(8, 32, 14, 14), _tensor(64, 32, 3, 3)
    rest = ((64,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True, True, True))
    split = without_bias(Signature("aten::convolution_backward", "", (gradient, x, weight, *rest), (x, weight)))

    assert split is not None
    assert split[0].inputs[-1] == (True, True, False)
    assert split[1].inputs[1] == (0, 2, 3)


def test_a_convolution_of_nhwc_turns_its_weight_and_nothing_else() -> None:
    costs = costs_of("h200")
    x, turned = _tensor(8, 64, 28, 28), _nhwc(8, 64, 28, 28)

    assert [piece.signature.name for piece in in_one_format(_convolution(None, turned))] == [
        "aten::copy_",
        "aten::convolution",
    ]
    assert any("nchwToNhwc" in kernel.name for kernel in costs.cost(_convolution(None, x)).kernels)
    assert not any("nchwToNhwc" in kernel.name for kernel in costs.cost(_convolution(None, turned)).kernels)


def test_the_workspace_of_a_convolution_holds_the_tensors_that_are_turned() -> None:
    """A batch that was not measured: the input, the output and the weight, or the input and the weight."""
    x = _tensor(24, 96, 56, 56)
    weight = 64 * 96 * 9
    (size,) = _taken(costs_of("h200").cost(_convolution(None, x)))

    assert size // 4 in range(24 * 96 * 56 * 56 + weight, 24 * (96 + 64) * 56 * 56 + weight + 128)


def test_passes_of_a_backward_do_not_hold_their_workspaces_together() -> None:
    gradient = x = _tensor(32, 64, 56, 56)
    weight = _tensor(64, 64, 3, 3)
    rest = ((0,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True, True, False))
    cost = costs_of("h200").cost(Signature("aten::convolution_backward", "", (gradient, x, weight, *rest), (x, weight)))

    (first,), (second,) = cost.temporaries[:2]
    assert min(first, second) > 4 * gradient.numel


@pytest.mark.parametrize(("mask", "roles"), [((True, False, False), {"dgrad"}), ((False, True, False), {"wgrad"})])
def test_one_gradient_runs_only_its_own_kernels(mask: tuple[bool, ...], roles: set[str]) -> None:
    x, weight = _tensor(16, 64, 56, 56), _tensor(64, 64, 3, 3)
    rest = ((0,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    one, both = (
        costs_of("h200").cost(Signature("aten::convolution_backward", "", (x, x, weight, *rest, asked), (x, weight)))
        for asked in (mask, (True, True, False))
    )
    names = " ".join(kernel.name for kernel in one.kernels).lower()

    assert {role for role in ("dgrad", "wgrad") if role in names} == roles
    assert len(one.kernels) < len(both.kernels)
    assert len(_taken(one)) == 1


def test_a_transposed_convolution_without_a_bias_computes_no_gradient_of_one() -> None:
    x, weight, out = _tensor(8, 128, 32, 32), _tensor(128, 64, 2, 2), _tensor(8, 64, 64, 64)
    rest = ((0,), (2, 2), (0, 0), (1, 1), True, (0, 0), 1, (True, True, False))
    cost = costs_of("h100").cost(Signature("aten::convolution_backward", "", (out, x, weight, *rest), (x, weight)))

    assert not any("reduce_kernel" in kernel.name for kernel in cost.kernels)
    assert max(_taken(cost)) < 2 * 4 * (x.numel + out.numel)


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_a_convolution_has_the_kernels_and_the_workspace_of_its_precision(precision: str) -> None:
    """cuDNN turns no tensor for this one without TF32."""
    call = _convolution(None, _tensor(20, 64, 56, 56))
    cost = costs_of("h100").cost(replace(call, precision=precision))
    in_tf32 = any("tf32" in kernel.name for kernel in cost.kernels)

    assert in_tf32 == (precision == "tf32")
    assert bool(_taken(cost)) == in_tf32


def test_shared_heads_have_their_gradients_summed() -> None:
    query, key = (_tensor(8, heads, 256, 64, dtype="bfloat16") for heads in (10, 5))
    signature = Signature("aten::_scaled_dot_product_flash_attention_backward", "", (query, query, key, key), (query,))

    assert _names(signature)[1:] == ["sum", "sum"]


def test_what_zeroes_its_results_was_measured_with_that() -> None:
    x, target, one = _tensor(8, 150, 64, 64), _tensor(8, 64, 64, dtype="int64"), TensorSpec("float32", (), ())
    loss = Signature("aten::nll_loss2d_forward", "", (x, target, None, 1, -100), (one, one))
    few = _tensor(8, 64, 16, 16)
    resized = Signature("aten::upsample_bilinear2d_backward", "", (x, (64, 64), few.sizes, False, None, None), (few,))

    assert _names(loss) == ["nll_loss2d_forward"]
    assert _names(resized) == ["upsample_bilinear2d_backward"]
    assert ["FillFunctor" in kernel.name for kernel in costs_of("h200").cost(resized).kernels] == [True, False]


def test_many_small_matrices_are_factored_at_once_and_have_an_orthogonal_factor_each() -> None:
    x, q, r = _tensor(50, 6, 4), _tensor(50, 6, 4), _tensor(50, 4, 4)
    signature = Signature("aten::linalg_qr", "", (x, "reduced"), (q, r))

    assert _names(signature) == ["geqrf", *["linalg_householder_product"] * 50]
    assert len(costs_of("h200").cost(signature).kernels) == 6 + 50 * 9


@pytest.mark.parametrize(
    ("dtype", "found"), [("float32", ["mm"] * 4), ("bfloat16", ["prepare_grouped_gemm_data", "mm"])]
)
def test_groups_are_products_but_in_bfloat16(dtype: str, found: list[str]) -> None:
    left, right, out = (_tensor(*sizes, dtype=dtype) for sizes in ((256, 512), (4, 512, 1376), (256, 1376)))

    assert _names(Signature("aten::_grouped_mm", "", (left, right, _tensor(4, dtype="int32")), (out,))) == found


@pytest.mark.parametrize(("batch", "taken"), [(1, ()), (32, (2304, 256))])
def test_a_sum_is_cut_among_blocks_where_torch_cuts_it(batch: int, taken: tuple[int, ...]) -> None:
    """An H200 took 2,304 and 256 bytes for the gradient of a bias of 64, of 32 images of 64 x 64."""
    x = _tensor(batch, 64, 64 if batch > 1 else 4, 64 if batch > 1 else 4)
    cost = costs_of("h200").cost(Signature("aten::sum", "dim_IntList", (x, (0, 2, 3), False, None), (_tensor(64),)))

    assert _taken(cost) == taken
    assert len(cost.kernels) == 1 + bool(taken)


def test_selecting_from_a_tensor_without_dimensions_costs_what_one_element_does() -> None:
    index = _tensor(1, dtype="int64")
    alone = Signature("aten::index_select", "", (_tensor(), 0, index), (_tensor(),))
    one = Signature("aten::index_select", "", (_tensor(1), 0, index), (_tensor(1),))

    assert costs_of("h200").cost(alone).kernels == costs_of("h200").cost(one).kernels


def test_a_roll_along_several_dimensions_is_a_roll_along_each() -> None:
    x = _tensor(8, 56, 56, 96)

    def rolled(*dims: int) -> OperatorCost:
        return costs_of("h200").cost(Signature("aten::roll", "", (x, (3,) * len(dims), dims), (x,)))

    assert rolled(1, 2).kernels == (*rolled(1).kernels, *rolled(2).kernels)


def test_patches_are_taken_from_one_image_after_the_other() -> None:
    def taken(batch: int) -> OperatorCost:
        args = (_tensor(batch, 16, 28, 28), (3, 3), (1, 1), (1, 1), (1, 1))
        return costs_of("h200").cost(Signature("aten::im2col", "", args, (_tensor(batch, 144, 784),)))

    assert taken(24).kernels == taken(1).kernels * 24


@pytest.mark.parametrize(("order", "times"), [(33, 7), (200, 7), (32, 1), (4, 1)])
def test_large_matrices_are_decomposed_one_after_the_other(order: int, times: int) -> None:
    several, one = (_eigenvalues(*batch, order, order) for batch in ((7,), ()))

    assert len(pieces(several)) == times
    if times > 1:
        whole, single = (costs_of("h200").cost(each) for each in (several, one))
        assert [kernel.name for kernel in whole.kernels] == 7 * [kernel.name for kernel in single.kernels]


def test_of_very_many_matrices_not_each_is_simulated() -> None:
    assert len(pieces(_eigenvalues(100_000, 40, 40))) == 1


def _eigenvalues(*sizes: int) -> Signature:
    x, values = (TensorSpec("float32", each, contiguous_strides(each)) for each in (sizes, sizes[:-1]))
    return Signature("aten::_linalg_eigh", "", (x, "L", True), (values, x))


@pytest.mark.parametrize("name", ["_foreach_div_", "_foreach_mul"])
def test_pairs_of_unequal_tensors_are_divided_one_by_one(name: str) -> None:
    """As Adam does with `capturable=True`: an H200 ran 40 kernels for 20 parameters, two for each."""
    weights, scales = (_tensor(64, 12, 7), _tensor(64)), (_tensor(), _tensor())
    unequal = Signature(f"aten::{name}", "List", (weights, scales), ())
    equal = Signature(f"aten::{name}", "List", (weights, weights), ())

    assert _names(unequal) == [name.replace("_foreach_", "")] * 2
    assert len(costs_of("h200").cost(unequal).kernels) == 2
    assert _names(equal) == [name]


@pytest.mark.parametrize(("operator", "rows"), [("index", True), ("gather", True), ("index", False), ("gather", False)])
def test_naming_whole_rows_is_a_gather_of_rows(operator: str, rows: bool) -> None:
    """Of 90,000 rows of 512 bytes, which take an H200 52 us, though it could move the bytes in 12."""
    count, width = 90_000, 128 if rows else 127  # 127: not a multiple of 16 bytes
    table, index = _tensor(10_000, width), _tensor(count, dtype="int64")
    spread = TensorSpec("int64", (count, width), (1, 0))
    inputs = (table, (index,)) if operator == "index" else (table, 0, spread)

    (kernel,) = costs_of("h200").cost(Signature(f"aten::{operator}", "", inputs, (_tensor(count, width),))).kernels

    assert ("vectorized_gather" in kernel.name) == rows
    if rows:
        assert 40_000 < kernel.duration_ns < 80_000


def test_a_gradient_that_is_not_asked_for_has_no_kernel() -> None:
    """The weight of a fixed blur needs none: an H200 ran one kernel for that of the input."""
    x, weight = _tensor(16, 3, 192, 192), _tensor(3, 1, 11, 11)
    sides = ((1, 1), (5, 5), (1, 1), False, (0, 0), 3)

    def kernels(mask: tuple[bool, bool, bool]) -> list[str]:
        inputs = (x, x, weight, None, *sides, mask)
        cost = costs_of("h200").cost(Signature("aten::convolution_backward", "", inputs, (x,)))
        return [kernel.name for kernel in cost.kernels]

    assert any("grad_weight" in name or "wgrad" in name for name in kernels((True, True, False)))
    assert not any("grad_weight" in name or "wgrad" in name for name in kernels((True, False, False)))


def test_a_transposed_convolution_is_what_cudnn_computes_for_it() -> None:
    """Its output is the gradient of the input of a convolution, which may be measured far more often."""
    big, small, weight = _tensor(8, 32, 32, 32), _tensor(8, 64, 16, 16), _tensor(64, 32, 4, 4)
    how = (2, 2), (1, 1), (1, 1)
    up = Signature("aten::convolution", "", (small, weight, None, *how, True, (0, 0), 1), (big,))
    asked = (True, False, False)
    given = small, big, weight, None, *how, False, (0, 0), 1, asked
    costs = costs_of("h200")

    assert (
        costs.cost(up).kernels[0].name
        == costs.cost(Signature("aten::convolution_backward", "", given, (big,))).kernels[0].name
    )
    assert _taken(costs.cost(up)) == _taken(costs.cost(Signature("aten::convolution_backward", "", given, (big,))))


def test_gradients_that_are_launched_apart_take_the_host_as_long_as_together() -> None:
    x, weight = _tensor(8, 64, 32, 32), _tensor(64, 64, 3, 3)
    rest = None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1

    def cost(overload: str, *asked: bool) -> OperatorCost:
        call = Signature("aten::convolution_backward", overload, (x, x, weight, *rest, asked), (x, weight))
        return costs_of("h200").cost(call)

    both, first, others = (
        cost("", True, True, False),
        cost("first", True, False, False),
        cost("others", False, True, False),
    )

    assert both.kernels == (*first.kernels, *others.kernels)
    assert both.temporaries == (*first.temporaries, *others.temporaries)
    assert both.host_ns == first.host_ns + others.host_ns
