"""How calls are described, so that alike calls are found, and what the names of their kernels tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unstall.virtual.costs.families import FAMILIES, CallShape, attention, describe, reductions
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.roofline import roofline_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides
from unstall.virtual.costs.tables import CostTable, of_rows


def _shape(name: str, *inputs: object, result: TensorSpec) -> CallShape:
    described = describe(Signature(f"aten::{name}", "", inputs, (result,)))
    assert described is not None
    return described[1]


def _tensor(*sizes: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(dtype, sizes, strides or contiguous_strides(sizes))


@pytest.mark.parametrize(
    ("strides", "run", "step"),
    [
        ((1, 512), 1, 512),  # transposed
        ((3 * 256, 1), 256, 768),  # the first third of each row
        ((256, 1), 1, 1),  # as the result: one vectorised run
    ],
)
def test_a_copy_is_described_by_its_runs_and_how_far_apart_they_are(
    strides: tuple[int, int], run: int, step: int
) -> None:
    to = _tensor(512, 256)
    dims = _shape("copy_", to, _tensor(512, 256, strides=strides), False, result=to).dims

    assert dims[2:4] == (run, step)


def test_a_last_thread_block_that_is_not_full_is_far_from_a_full_one() -> None:
    full, other = (_shape("exp", _tensor(size), result=_tensor(size)).dims[4] for size in (4_096, 4_097))
    broadcast = _shape("add", _tensor(3, 5), _tensor(5), result=_tensor(3, 5)).dims[4]

    assert full == 1 < other
    assert broadcast == 1  # its kernel computes each address anyway


def test_rows_that_no_vector_divides_have_kernels_of_their_own() -> None:
    def norm(width: int) -> str:
        x, weight = _tensor(64, width), _tensor(width)
        return _shape("native_layer_norm", x, (width,), weight, weight, ("s", True), result=x).variants[0]

    assert [norm(1_024), norm(1_023)] == ["float32 native_layer_norm", "float32 native_layer_norm odd"]


def test_joined_rows_that_no_vector_divides_have_kernels_of_their_own() -> None:
    def joined(width: int) -> str:
        x = _tensor(64, width)
        return _shape("cat", (x, x), -1, result=_tensor(64, 2 * width)).variants[0]

    assert [joined(64), joined(63)] == ["float32 cat contiguous", "float32 cat odd"]


def test_an_index_that_names_rows_is_told_from_one_for_each_element() -> None:
    table = _tensor(100, 30)

    def gathered(strides: tuple[int, int]) -> str:
        index = _tensor(50, 30, dtype="int64", strides=strides)
        return _shape("gather", table, 1, index, result=_tensor(50, 30)).variants[0]

    assert [gathered((30, 1)), gathered((1, 0))] == ["float32 gather", "float32 gather rows"]


FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t"
FLASH_BACKWARD = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 64, 8, 4, 4, 4"
EFFICIENT = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float"
EFFICIENT_BACKWARD = "fmha_cutlassB_f32_aligned_64x32_k64_dropout_sm80(PyTorchMemEffAttention"


@pytest.mark.parametrize(
    ("kernel", "blocks"),
    [(FLASH, 12 * 4), (FLASH_BACKWARD, 12 * 4), (EFFICIENT, 12 * 8), (EFFICIENT_BACKWARD, 12 * 8), ("exp", 0)],
)
def test_the_name_of_a_kernel_of_attention_tells_its_blocks(kernel: str, blocks: int) -> None:
    assert attention.blocks("", (12, 500, 250, 64), kernel) == blocks


def test_thread_blocks_of_attention_come_in_rounds() -> None:
    few, more, odd = (attention.rounds((heads, 512, 512, 64), [FLASH], 132) for heads in (33, 34, 66))

    assert few == 1.0  # 132 blocks
    assert more == pytest.approx(2 * 132 / 136)
    assert odd == 1.0
    assert attention.rounds((1, 100, 512, 64), [EFFICIENT], 132) == pytest.approx(132 * 64 / 100)
    assert attention.rounds((12, 512, 512, 64), ["cudnn_generated_fort_native_sdpa"], 132) is None


@pytest.mark.parametrize("family", FAMILIES)
def test_all_calls_of_a_variant_have_as_many_coordinates(family: str) -> None:
    file = gpu_named("h200").file
    geometry = FAMILIES[family].geometry
    for variant, table in file.tables[family].items() if geometry else ():
        calls = of_rows(table, len(FAMILIES[family].axes), file.sequences)
        assert len({len(geometry(variant, call.dims, 132)) for call in calls}) == 1


def test_a_thread_of_a_reduction_adds_up_four_columns_if_four_divides_them() -> None:
    told = reductions.geometry("float32 sum RK", (1_024, 4_096, 1_024, 4), 132)
    odd = reductions.geometry("float32 sum RK", (1_023, 4_096, 1_023, 4), 132)

    assert told[2] == 2.0  # doublings: four results of a thread
    assert odd[2] == 0.0


def test_times_of_columns_are_predicted_from_the_others() -> None:
    """Their mean error is 12 %; without what `reductions` knows of threads and blocks, it is 21 %."""
    gpu = gpu_named("h200")
    roofline = roofline_of(gpu.file.peaks, gpu.file.device.l2_bytes, gpu.file.device.multiprocessors)
    calls = of_rows(gpu.file.tables["reduction"]["float32 sum RK"], 4, gpu.file.sequences)
    table = CostTable(reductions.FAMILY, "float32 sum RK", calls, roofline)
    logs = [
        math.log(table.ask(call.dims, roofline, without=np.arange(len(calls)) == at).total_ns / call.total_ns)
        for at, call in enumerate(calls)
    ]

    assert np.abs(logs).mean() < 0.15


def test_a_sampled_image_is_described_by_its_channels_and_the_pixels_of_its_grid() -> None:
    x, grid, out = _tensor(2, 8, 50, 60), _tensor(2, 10, 12, 2), _tensor(2, 8, 10, 12)
    ours, cudnns = (
        _shape("grid_sampler_2d", x, grid, 0, 0, False, result=out),
        _shape("cudnn_grid_sampler", x, grid, result=out),
    )

    assert ours.dims[2:] == cudnns.dims[2:] == (8, 2 * 10 * 12)


def test_half_precision_stands_for_the_other_half_with_the_kernels_of_one_library() -> None:
    x = _tensor(2, 8, 128, 64, dtype="float16")
    shape = _shape("_scaled_dot_product_cudnn_attention", x, x, x, None, False, ("s", False), False, False, result=x)
    file = gpu_named("h200").file

    known = next(variant for variant in shape.variants if variant in file.tables["attention"])
    assert known == "bfloat16 cudnn forward full"


def test_a_copy_to_places_in_the_tensor_itself_is_no_copy_of_all_of_it() -> None:
    x, places, rows = _tensor(1_000, 64), _tensor(10, dtype="int64"), _tensor(10, 64)
    described = describe(Signature("aten::index_copy_", "", (x, 0, places, rows), (x,)))

    assert described is not None
    assert described[0].name == "indexing"
    assert described[1].variants[0] == "float32 index_put_"
