"""What the kernels of a convolution tell of its workspace, beside what cuDNN asked for on an H100."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from unstall.virtual.costs.families.conv_kernels import copies, halves, passes, sums, temporaries, transforms
from unstall.virtual.costs.families.family import Measured
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

MEASURED = Path(__file__).parents[3] / "benchmarks" / "results" / "conv_workspaces_h100.json"
IN, OUT = "nchwToNhwcKernel<float>", "nhwcToNchwKernel<float>"
PRODUCT = "sm90_xmma_fprop_implicit_gemm_tilesize128x128x32_execute_segment_k_off_kernel"
DGRAD, WGRAD = (PRODUCT.replace("fprop", each) for each in ("dgrad", "wgrad"))
BY_FFT = (
    *("flip_filter<float>", "fft2d_r2c_32x32<float>", "fft2d_r2c_32x32<float>"),
    *("sm80_xmma_gemm_cf32cf32_f32f32_cf32_tn_n_tilesize32x64x8", "fft2d_c2r_32x32<float>"),
)
FORWARD = "float32 forward dense cc"
BOTH = "float32 backward-xw dense ccc"
DIMS = (8, 64, 96, 900, 900, 9, 1, 1)
X, WEIGHT, RESULT = 4 * 8 * 64 * 900, 4 * 64 * 96 * 9, 4 * 8 * 96 * 900


def test_a_workspace_holds_the_tensors_that_are_turned() -> None:
    assert copies(FORWARD, DIMS, "forward", (IN, IN, PRODUCT, OUT)) == X + WEIGHT + RESULT
    assert copies(FORWARD, DIMS, "forward", (IN, IN, PRODUCT)) == X + WEIGHT
    assert copies(FORWARD, DIMS, "forward", (PRODUCT,)) == 0


def test_the_turned_tensors_of_a_gradient_are_its_own() -> None:
    assert copies(BOTH, DIMS, "x", (IN, IN, DGRAD)) == RESULT + WEIGHT
    assert copies(BOTH, DIMS, "w", (IN, IN, WGRAD)) == X + RESULT


def test_a_memset_before_a_copy_fills_channels_up_to_16_bytes() -> None:
    images = (8, 3, 64, 900, 900, 9, 1, 1)
    found = copies(FORWARD, images, "forward", ("Memset (Device)", IN, "Memset (Device)", IN, PRODUCT))

    assert found == 4 * (8 * 4 * 900 + 4 * 64 * 9)
    assert found - copies(FORWARD, images, "forward", (IN, IN, PRODUCT)) == 4 * (8 * 900 + 64 * 9)


@pytest.mark.parametrize("second", [("Memset (Device)", "wgrad_alg0_engine<float>"), (WGRAD,), (IN, IN, WGRAD, OUT)])
def test_a_backward_is_split_where_its_second_gradient_begins(second: tuple[str, ...]) -> None:
    first = (IN, IN, DGRAD, OUT)
    held = copies(BOTH, DIMS, "x", first), copies(BOTH, DIMS, "w", second)
    found = halves(BOTH, Measured(DIMS, (*first, *second), tuple(size + 16 for size in held if size)))

    assert found is not None
    (x, of_x, x_sizes), (w, of_w, w_sizes) = found
    assert (x, w) == ("x", "w")
    assert ((*first, *second)[of_x], (*first, *second)[of_w]) == (first, second)
    assert (x_sizes, w_sizes) == ((held[0] + 16,), (held[1] + 16,) if held[1] else ())


@pytest.mark.parametrize("first", [(IN, IN, DGRAD, OUT), ("dgrad2d_alg1_1<float>",), BY_FFT])
def test_a_gradient_of_a_weight_by_fft_begins_with_its_transforms(first: tuple[str, ...]) -> None:
    assert passes(BOTH, (*first, *BY_FFT)) == [("x", first), ("w", BY_FFT)]


def test_a_workspace_grows_with_the_batch_by_its_copies_alone() -> None:
    """Partial sums, here 1 MB, are of the weight, whatever the batch is."""
    kernels = (IN, IN, WGRAD, "ReduceSplitK", OUT)
    held = copies(BOTH, DIMS, "w", kernels)
    measured = Measured(DIMS, kernels, (held + 1_000_000,))
    twice = (16, *DIMS[1:])

    assert temporaries("float32 backward-w dense ccc", twice, measured, (132, 132)) == (
        copies(BOTH, twice, "w", kernels) + 1_000_000,
    )


@pytest.mark.parametrize("precision", ["tf32", "ieee"])
def test_a_backward_without_images_has_a_cost(precision: str) -> None:
    x, weight, gradient, bias = (_tensor(*sizes) for sizes in ((0, 16, 8, 8), (32, 16, 3, 3), (0, 32, 8, 8), (32,)))
    given = gradient, x, weight, (32,), (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True, True, True)
    call = Signature("aten::convolution_backward", "", given, (x, weight, bias), precision)

    assert len(costs_of("h100").cost(call).kernels) > 2


@pytest.mark.parametrize("kernel", ["ReduceSplitK", "wgrad_implicit_gemm_tilesize64x64x32"])
def test_as_many_sums_are_shared_whatever_the_size_of_the_result(kernel: str) -> None:
    narrow, wide = ((DIMS[0], channels, *DIMS[2:]) for channels in (128, 1024))

    found = [sums("float32 backward-w dense ccc", dims, "w", (WGRAD, kernel), 132) for dims in (narrow, wide)]

    assert found[1] == 8 * found[0]


@pytest.mark.parametrize("kernels", [(PRODUCT, "segment_k_on"), (PRODUCT, "ReduceSplitK")])
def test_a_convolution_without_images_shares_no_sums(kernels: tuple[str, ...]) -> None:
    assert sums(FORWARD, (0, *DIMS[1:]), "forward", kernels, 132) >= 0


@pytest.mark.parametrize("algorithm", ["winograd", "fft", "reduce_wgrad_nchw"])
def test_what_an_algorithm_keeps_is_what_cudnn_asked_for(algorithm: str) -> None:
    found = [
        (sum(taken), copies(variant, dims, way, names) + transforms(variant, dims, way, names))
        for variant, dims, way, names, taken in _calls()
        if algorithm in " ".join(names) and dims[6] == 1 and "nchw" not in names[0]
    ]
    right = sum(abs(asked - told) <= 1024 for asked, told in found)

    assert len(found) > 10
    assert right >= 0.9 * len(found)


def test_most_workspaces_are_the_copies_alone() -> None:
    """Of the calls that turn tensors and do not share sums, as their kernels say."""
    shares = ("segment_k_on", "ReduceSplitK", "split", "wgrad", "fft", "winograd")
    found = [
        (taken[-1], copies(variant, dims, way, names))
        for variant, dims, way, names, taken in _calls()
        if taken and dims[6] == 1 and "nchwToNhwc" in " ".join(names) and not any(each in str(names) for each in shares)
    ]

    assert len(found) > 100
    assert sum(abs(asked - told) <= 1024 for asked, told in found) > 0.93 * len(found)


def _tensor(*sizes: int) -> TensorSpec:
    return TensorSpec("float32", sizes, contiguous_strides(sizes))


def _calls() -> Iterator[tuple[str, tuple[int, ...], str, tuple[str, ...], list[int]]]:
    """Yields `(variant, dims, pass, kernels, bytes)` of each measured call on NCHW tensors."""
    real = _real()
    for _, batch, channels, filters, side, kernel, stride, groups, dtype, layouts, way, _, run, _, taken in real[
        "calls"
    ]:
        out = (side + 2 * ((kernel - 1) // 2) - kernel) // stride + 1
        dims = (batch, channels, filters, side * side, out * out, kernel * kernel, groups, 1)
        kind = "forward" if way == "forward" else f"backward-{way}"
        if layouts == "cc":
            names = tuple(real["kernels"][name] for name in real["sequences"][run])
            yield f"{dtype} {kind} dense ccc", dims, way, names, taken


@cache
def _real() -> Any:
    return json.loads(MEASURED.read_text())
