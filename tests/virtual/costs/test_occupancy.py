"""The room that thread blocks fill, and how many blocks kernels have."""

from __future__ import annotations

import gzip
import json
from math import prod
from pathlib import Path

import pytest

from unstall.replay.program import WHOLE
from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.model import Kernel
from unstall.virtual.costs.occupancy import UNKNOWN, Block, size_of, tile_of, usual_block
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_RECORDED = Path(__file__).parents[3] / "examples" / "transformers" / "recorded"


def _launches() -> set[tuple[str, int, int, int]]:
    """Returns (kernel, threads, registers of a thread, bytes of shared memory) of the launches of recorded traces."""
    return {
        (event["name"], prod(args["block"]), args["registers per thread"], args["shared memory"])
        for path in _RECORDED.glob("*.trace.json.gz")
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if "registers per thread" in (args := event.get("args", {}))
    }


def _fitting(threads: int, registers: int, shared_bytes: int) -> int:
    """Returns how many blocks fit on a multiprocessor of an H200, by CUDA's rules."""
    warps = -(-threads // 32)
    of_block = -(-registers // 8) * 8 * 32 * warps
    return min(32, 2048 // (32 * warps), 65_536 // of_block, (228 << 10) // (shared_bytes + 1024))


def _right(known: dict[str, Block]) -> tuple[int, int]:
    """Returns how many recorded launches are of kernels whose blocks are known, and of how many as many blocks fit."""
    found = [(WHOLE // size_of(known[name], (9, 0)), _fitting(*used)) for name, *used in _launches() if name in known]
    return len(found), sum(said == fit for said, fit in found)


def test_as_many_measured_blocks_fit_as_recorded_launches_say() -> None:
    file = gpu_named("h200").file
    blocks = zip(file.kernels, file.kernel_blocks, strict=True)
    count, right = _right({name: block for name, block in blocks if block != UNKNOWN})

    assert count > 60
    assert right >= 0.8 * count


def test_as_many_blocks_of_products_fit_as_recorded_launches_say() -> None:
    usual = {name: usual_block(name) for name, *_ in _launches()}
    count, right = _right({name: block for name, block in usual.items() if block != UNKNOWN})

    assert count > 20
    assert right >= 0.8 * count


def test_a_smaller_multiprocessor_holds_fewer_blocks() -> None:
    assert [WHOLE // size_of(Block(128, 32), of) for of in ((9, 0), (8, 9), (7, 5))] == [16, 12, 8]


def test_threads_fill_whole_warps() -> None:
    assert size_of(Block(65, 128), (9, 0)) == size_of(Block(96, 128), (9, 0))


def test_the_block_of_a_kernel_that_was_never_recorded_is_unknown() -> None:
    assert usual_block("my_kernel") == UNKNOWN


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", (128, 64)),
        ("nvjet_sm90_hss_64x8_64x16_1x2_v_bz_NNT", (64, 8)),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", (256, 128)),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3", (64, 64)),
        ("my_kernel", None),
    ],
)
def test_the_name_of_a_kernel_tells_its_tile(kernel: str, tile: tuple[int, int] | None) -> None:
    assert tile_of(kernel) == tile


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _kernels(
    name: str, *tensors: TensorSpec, result: TensorSpec | None = None, inputs: tuple[object, ...] = ()
) -> tuple[Kernel, ...]:
    signature = Signature(f"aten::{name}", "", (*tensors, *inputs), (result or tensors[0],))
    return costs_of("h100").cost(signature).kernels


def _blocks(kernel: Kernel) -> int:
    return kernel.blocks * 132 // WHOLE


def test_blocks_share_each_sum_of_a_float32_product_with_few_tiles() -> None:
    x = _tensor(512, 512)
    parts, sums = _kernels("mm", x, x)

    assert (_blocks(parts), _blocks(sums)) == (256, 128)  # as in a trace of this kernel


def test_a_float32_product_uses_more_of_the_device_the_more_blocks_it_has() -> None:
    x = _tensor(512, 512)
    parts, _ = _kernels("mm", x, x)
    (few,) = _kernels("mm", _tensor(128, 128), _tensor(128, 128))

    assert WHOLE > parts.share > 0.4 * WHOLE  # on an H200, two loops of it take 1.46 times as long as one
    assert few.share < 0.2 * WHOLE
    assert _blocks(few) == 16


@pytest.mark.parametrize("side", [256, 1024])  # tiles of 64 x 8 and of 128 x 64, as in traces
def test_a_product_on_hoppers_tensor_cores_leaves_no_room_on_its_multiprocessors(side: int) -> None:
    x = _tensor(side, side, dtype="bfloat16")
    (product,) = _kernels("mm", x, x)

    assert "nvjet_sm90" in product.name
    assert _blocks(product) == 128
    assert WHOLE // product.size == 1


@pytest.mark.parametrize(
    ("name", "inputs", "blocks"),
    [("_softmax", (-1, False), 128), ("native_layer_norm", ([1024],), 512), ("exp", (), 512)],
)
def test_kernels_of_torch_have_the_blocks_that_its_source_says(
    name: str, inputs: tuple[object, ...], blocks: int
) -> None:
    (kernel,) = _kernels(name, _tensor(512, 1024), inputs=inputs)

    assert _blocks(kernel) == blocks


def test_a_call_of_a_size_that_was_not_measured_has_blocks_by_its_bytes() -> None:
    small, large = (
        _kernels("cat", _tensor(size, 255), _tensor(size, 255), result=_tensor(size, 510), inputs=(-1,))[-1]
        for size in (300, 300 << 6)
    )

    assert 0 < small.blocks < large.blocks
    assert large.blocks > 16 * WHOLE  # more than fit at once


def test_kernels_of_one_name_have_blocks_of_their_own() -> None:
    kernels = _kernels("cat", result=_tensor(200 * 256), inputs=((_tensor(256),) * 200, 0))

    assert len({kernel.name for kernel in kernels}) == 1
    assert [_blocks(kernel) for kernel in kernels] == [128, 72]  # as an H200 ran this call


def test_kernels_that_are_repeated_for_more_tensors_share_the_blocks_of_their_name() -> None:
    def kernels(count: int) -> tuple[Kernel, ...]:
        lists = ((_tensor(131_072),) * count, (_tensor(131_072),) * count)
        return costs_of("h200").cost(Signature("aten::_foreach_add_", "List", (*lists, 1), ())).kernels

    measured, more = kernels(100), kernels(1_000)

    assert len(more) > len(measured)
    assert sum(map(_blocks, more)) == pytest.approx(10 * sum(map(_blocks, measured)), rel=0.1)


def test_a_kernel_that_fills_the_device_leaves_little_of_its_rate_to_others() -> None:
    x = _tensor(1 << 14, 1 << 10)
    turned = TensorSpec("float32", (1 << 14, 1 << 10), (1, 1 << 14))
    (kernel,) = _kernels("copy_", x, turned, result=x)

    assert kernel.share > 0.9 * WHOLE


def test_a_depthwise_convolution_moves_memory() -> None:
    """Its blocks are those of a trace of an H200."""
    maps, filters = _tensor(16, 64, 56, 56), _tensor(64, 1, 3, 3)
    (kernel,) = _kernels(
        "convolution", maps, filters, inputs=(None, [1, 1], [1, 1], [1, 1], False, [0, 0], 64), result=maps
    )

    assert "depthwise" in kernel.name
    assert _blocks(kernel) == 3_136
    assert kernel.share > 0.9 * WHOLE


def test_only_data_that_fits_into_the_l2_cache_can_be_missing_there() -> None:
    fits, does_not = (_kernels("exp", _tensor(size))[0] for size in (4 << 20, 16 << 20))

    assert fits.uncached_ns > 1_000
    assert fits.cached < WHOLE < does_not.cached
    assert does_not.uncached_ns == 0
