"""What uses a small part of a large tensor costs what it uses, and whole sectors of the memory."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

_COUNT = 1 << 20


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _ns(call: Signature, gpu: str = "h200") -> int:
    return sum(kernel.duration_ns for kernel in costs_of(gpu).cost(call).kernels)


def _call(operator: str, size: int) -> Signature:
    x, at, given = _tensor(size), _tensor(_COUNT, dtype="int64"), _tensor(_COUNT)
    match operator:
        case "index":
            return Signature("aten::index", "Tensor", (x, (at,)), (given,))
        case "index_put_":
            return Signature("aten::index_put_", "", (x, (at,), given, False), (x,))
        case "take":
            return Signature("aten::take", "", (x, at), (given,))
        case "put_":
            return Signature("aten::put_", "", (x, at, given, False), (x,))
        case "gather" | "index_select":
            return Signature(f"aten::{operator}", "", (x, 0, at), (given,))
        case "index_fill_":
            return Signature("aten::index_fill_", "int_Scalar", (x, 0, at, 1.0), (x,))
        case _:
            return Signature(f"aten::{operator}", "", (x, 0, at, given), (x,))


_OPERATORS = (
    *("index", "take", "gather", "index_select", "index_put_", "put_", "index_copy_", "index_fill_", "index_add_"),
    *("index_reduce_", "scatter_", "scatter_add_", "scatter_reduce_"),
)


@pytest.mark.parametrize("gpu", ["h200", "t4"])
@pytest.mark.parametrize("operator", _OPERATORS)
def test_an_index_costs_what_it_names_and_not_its_table(operator: str, gpu: str) -> None:
    times = [_ns(_call(operator, size), gpu) for size in (1 << 24, 1 << 26, 1 << 28, 1 << 30)]
    assert max(times) < 2 * min(times)


@pytest.mark.parametrize("operator", ["index", "gather", "scatter_add_"])
def test_an_element_of_a_table_that_no_cache_holds_costs_a_sector_of_the_memory(operator: str) -> None:
    sectors = 2 if operator == "scatter_add_" else 1  # read, and also written
    for gpu, bytes_per_ns in (("h200", 4_800), ("t4", 320)):
        assert _ns(_call(operator, 1 << 28), gpu) > 0.9 * sectors * 32 * _COUNT / bytes_per_ns


def test_rows_of_bytes_are_no_indices() -> None:
    images = _tensor(200_000, 4, 84, 84, dtype="uint8")
    write = Signature(
        "aten::index_put_",
        "",
        (images, (_tensor(64, dtype="int64"),), _tensor(64, 4, 84, 84, dtype="uint8")),
        (images,),
    )
    assert _ns(write) < 20_000  # 2 MB


@pytest.mark.parametrize("how", ["bilinear2d", "nearest2d", "bicubic2d"])
def test_few_pixels_of_a_large_image_cost_little(how: str) -> None:
    out, options = _tensor(4, 3, 64, 64), () if how == "nearest2d" else (False,)
    small, large = (
        _ns(Signature(f"aten::upsample_{how}", "", (_tensor(4, 3, edge, edge), (64, 64), *options), (out,)))
        for edge in (512, 8192)
    )
    assert large < 4 * small


def test_few_searches_do_not_read_all_that_they_search() -> None:
    found, wanted = _tensor(256, dtype="int64"), _tensor(256)
    times = [
        _ns(Signature("aten::searchsorted", "Tensor", (_tensor(size), wanted), (found,))) for size in (1 << 20, 1 << 28)
    ]
    assert times[1] < 3 * times[0]
