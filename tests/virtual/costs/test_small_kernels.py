"""Kernels whose time is that of their thread blocks, and large ones whose memory is slower, beside an H100's."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.measured_costs import costs_of
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _us(call: Signature, gpu: str = "h100") -> list[float]:
    return [kernel.duration_ns / 1e3 for kernel in costs_of(gpu).cost(call).kernels]


def _group_norm(groups: int) -> Signature:
    x, each, of_groups = _tensor(4, 64, 64, 64), _tensor(64), _tensor(4, groups)
    return Signature(
        "aten::native_group_norm", "", (x, each, each, 4, 64, 4096, groups, 1e-5), (x, of_groups, of_groups)
    )


def test_few_large_groups_take_a_group_norm_longer() -> None:
    assert _us(_group_norm(8))[0] == pytest.approx(17.4, rel=0.1)  # on an H100
    assert _us(_group_norm(8))[0] > 2 * _us(_group_norm(32))[0]


@pytest.mark.parametrize(("rows", "width", "us"), [(160_000, 64, 97.8), (16_384, 8, 11.5)])
def test_a_gather_takes_as_long_as_a_block_for_each_row(rows: int, width: int, us: float) -> None:
    index, result = _tensor(rows, dtype="int64"), _tensor(rows, width)
    assert sum(
        _us(Signature("aten::index_select", "", (_tensor(20_000, width), 0, index), (result,)))
    ) == pytest.approx(us, rel=0.15)


def test_no_call_moves_its_bytes_faster_than_the_memory_does() -> None:
    x = _tensor(40 << 20)
    moved = 2 * 4 * (40 << 20)
    assert moved / sum(_us(Signature("aten::exp", "", (x,), (x,)))) == pytest.approx(2_980e3, rel=0.03)  # an H100's


def test_sums_of_rows_keep_what_they_take_beyond_their_memory() -> None:
    x = _tensor(16_384, 4_096)
    call = Signature("aten::sum", "dim_IntList", (x, (1,), False, None), (_tensor(16_384),))
    assert sum(_us(call)) == pytest.approx(105, rel=0.1)  # 107 and 116 us were measured on an H100
    assert sum(_us(call, "h200")) < 0.8 * sum(_us(call))


@pytest.mark.parametrize("name", ["index_add", "scatter_add"])
def test_an_operator_in_place_copies_nothing_first(name: str) -> None:
    x, source = _tensor(500, 64), _tensor(900, 64)
    index = _tensor(900, dtype="int64") if name == "index_add" else _tensor(900, 64, dtype="int64")
    own, in_place = (
        [kernel.name for kernel in costs_of("h200").cost(Signature(called, "", (x, 0, index, source), (x,))).kernels]
        for called in (f"aten::{name}", f"aten::{name}_")
    )
    assert [kernel for kernel in own if "DtoD" not in kernel] == in_place
    assert own != in_place
