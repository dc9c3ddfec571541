"""Measured calls, looked up by shape."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from unstall.errors import UsageError
from unstall.virtual.costs.families import FAMILIES
from unstall.virtual.costs.gpu_file import as_json
from unstall.virtual.costs.roofline import Roofline
from unstall.virtual.costs.tables import CostTable, MeasuredCall, as_rows, of_rows

_H200 = Roofline(51e3, 808e3, 61e3, 4.2e3, 60 << 20, 6.2e3, 900, 132)
_HALF = Roofline(25.5e3, 404e3, 30e3, 2.1e3, 60 << 20, 3.1e3, 900, 66)
_PRODUCT = FAMILIES["product"]
_CALLS = [
    MeasuredCall(
        (1, rows, 768, 768, 1), (0,) if rows > 100 else (1, 2), (ns,) if rows > 100 else (ns - 500, 500), (4096,)
    )
    for rows, ns in ((16, 9_000), (128, 12_000), (1024, 40_000), (8192, 205_000))
]


def _table() -> CostTable:
    return CostTable(_PRODUCT, "float32 bias nt", _CALLS, _H200)


@pytest.mark.parametrize("call", _CALLS)
def test_a_measured_call_takes_what_was_measured(call: MeasuredCall) -> None:
    answer = _table().ask(call.dims, _H200)

    assert answer.total_ns == pytest.approx(call.total_ns)
    assert answer.nearest is call


def test_a_call_between_two_takes_a_time_between_theirs() -> None:
    answer = _table().ask((1, 2048, 768, 768, 1), _H200)

    assert 40_000 < answer.total_ns < 205_000


def test_a_kernel_slower_than_the_memory_is_as_slow_out_of_the_cache() -> None:
    rate = 2_000  # bytes per ns; the memory moves 4,200
    held = [(1, rows, 1, 4_096, 1) for rows in (512, 1_024, 2_048)]
    calls = [MeasuredCall(dims, (0,), (round(900 + 4 * dims[1] * dims[3] / rate),)) for dims in held]
    table = CostTable(_PRODUCT, "float32 vector nt", calls, _H200)

    assert table.ask((1, 8_192, 1, 4_096, 1), _H200).total_ns == pytest.approx(4 * 8_192 * 4_096 / rate, rel=0.1)


def test_a_kernel_faster_than_the_memory_has_its_rate_out_of_the_cache() -> None:
    calls = [
        MeasuredCall((1, rows, 1, 4_096, 1), (0,), (round(900 + 4 * rows * 4_096 / 5_000),)) for rows in (1_024, 2_048)
    ]
    table = CostTable(_PRODUCT, "float32 vector nt", calls, _H200)

    assert table.ask((1, 8_192, 1, 4_096, 1), _H200).total_ns == pytest.approx(4 * 8_192 * 4_096 / 4_200, rel=0.05)


def test_kernels_are_the_nearest_calls() -> None:
    assert _table().ask((1, 20, 768, 768, 1), _H200).nearest.names == (1, 2)


def test_a_gpu_of_half_the_rates_takes_twice_as_long_for_large_calls() -> None:
    dims = (1, 8192, 768, 768, 1)

    ratio = _table().ask(dims, _HALF).total_ns / _table().ask(dims, _H200).total_ns

    assert ratio == pytest.approx(2.0, rel=0.02)


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_temporary_memory_grows_with_what_the_call_moves(one: int, other: int) -> None:
    table = _table()
    small, large = sorted((one, other))

    first, second = (
        table.temporaries(dims, table.ask((1, 8192, 768, 768, 1), _H200), 132)
        for dims in ((1, small, 768, 768, 1), (1, large, 768, 768, 1))
    )

    assert first <= second or small == large


def test_a_convolution_has_the_algorithm_of_most_that_are_near() -> None:
    """The call of the nearest batch is outvoted. Its own batch has what was measured."""
    kernels = ["nchwToNhwcKernel", "fprop_nhwc", "fprop_nchw"]
    odd = MeasuredCall((16, 64, 64, 900, 900, 9, 1, 1), (0, 0, 1), (1, 1, 9), (1_000,))
    usual = [MeasuredCall((batch, *odd.dims[1:]), (2,), (10,)) for batch in (4, 8, 32, 64)]
    table = CostTable(FAMILIES["convolution"], "float32 forward dense cc", [odd, *usual], _H200, kernels)

    assert table.ask((22, *odd.dims[1:]), _H200).nearest.names == (2,)
    assert table.ask(odd.dims, _H200).nearest is odd


def test_of_calls_with_one_algorithm_most_that_are_near_say_which_kernels_run() -> None:
    """The nearest call has a smaller tile than the others around it."""
    kernels = ["fprop_nhwc_tilesize64x32x64", "fprop_nhwc_tilesize128x64x32"]
    odd = MeasuredCall((16, 64, 64, 900, 900, 9, 1, 1), (0,), (9,))
    usual = [MeasuredCall((batch, *odd.dims[1:]), (1,), (10,)) for batch in (4, 8, 32, 64)]
    table = CostTable(FAMILIES["convolution"], "float32 forward dense lc", [odd, *usual], _H200, kernels)

    assert table.ask((22, *odd.dims[1:]), _H200).nearest.names == (1,)


def test_a_gpu_with_half_the_multiprocessors_is_as_efficient_in_products_of_half_the_rows() -> None:
    whole, half = _table().ask((1, 128, 768, 768, 1), _H200), _table().ask((1, 64, 768, 768, 1), _HALF)

    assert half.nearest is whole.nearest
    assert half.total_ns == pytest.approx(whole.total_ns, rel=0.02)


_IN_STEP = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma"


@pytest.mark.parametrize(("rows", "rounds"), [(10_000, 6), (12_544, 6), (12_700, 8)])
def test_thread_blocks_of_a_float32_product_come_in_rounds(rows: int, rounds: int) -> None:
    """Two blocks run in step on each of 132 multiprocessors: 512 blocks are 2 rounds of two, 632 and 784 are 3."""
    measured = MeasuredCall((1, 8_192, 1_024, 512, 1), (0,), (181_280,))
    table = CostTable(_PRODUCT, "float32 plain nt", [measured], _H200, [_IN_STEP])

    answer = table.ask((1, rows, 1_024, 512, 1), _H200)

    assert answer.total_ns == pytest.approx(181_280 * rounds / 4, rel=0.02)


def test_of_two_kernels_the_faster_is_likelier() -> None:
    """For 133 blocks of 128 x 128, each second multiprocessor waits for one that has two."""
    tiles = [_IN_STEP, _IN_STEP.replace("128x128x8", "64x64x8")]
    calls = [MeasuredCall((1, rows, 1_024, 512, 1), (at,), (50_000,)) for rows, at in ((2_000, 0), (2_311, 1))]
    alone = [CostTable(_PRODUCT, "float32 plain nt", [call], _H200, tiles) for call in calls]
    slow, fast = (each.ask((1, 2_150, 1_024, 512, 1), _H200).total_ns for each in alone)
    both = CostTable(_PRODUCT, "float32 plain nt", calls, _H200, tiles)

    assert slow > 1.5 * fast
    assert fast < both.ask((1, 2_150, 1_024, 512, 1), _H200).total_ns < (slow * fast) ** 0.5


@pytest.mark.parametrize("repeats", [(), (4_000, 1_460)])
@pytest.mark.parametrize("blocks", [(), (40,)])
def test_rows_of_a_file_give_the_calls_back(blocks: tuple[int, ...], repeats: tuple[int, ...]) -> None:
    sequences: dict[tuple[int, ...], int] = {}
    calls = [replace(call, blocks=blocks * len(call.names), repeats=repeats) for call in _CALLS]

    rows = as_rows(calls, sequences)

    assert of_rows(rows, 5, list(sequences)) == calls


def test_a_call_far_from_measured_ones_is_on_the_line_through_them() -> None:
    """In a weighted mean, the three small ones would count most, and the call would take 0.7 times as long."""
    family, variant = FAMILIES["indexing"], "float32 gather"

    def took(size: int) -> int:  # less efficient, the larger it is
        return round(math.pow(size, 0.2) * _H200.ns(family.work(variant, (1, size, 1, size)), "float32"))

    sizes = 1 << 12, 1 << 13, 1 << 14, 1 << 20
    table = CostTable(family, variant, [MeasuredCall((1, size, 1, size), (0,), (took(size),)) for size in sizes], _H200)

    for size in (1 << 16, 1 << 17, 1 << 18):
        assert table.ask((1, size, 1, size), _H200).total_ns == pytest.approx(took(size), rel=0.1)


def test_the_nearest_call_with_the_same_kernels_tells_the_blocks() -> None:
    sizes = 1 << 16, 1 << 18, 1 << 20, 1 << 22
    calls = [
        MeasuredCall((1, size, 1, size), (at == 2,), (9_000,), (), blocks)
        for at, (size, blocks) in enumerate(zip(sizes, ((64,), (), (7,), (4_096,)), strict=True))
    ]
    table = CostTable(FAMILIES["indexing"], "float32 gather", calls, _H200)

    assert table.launched_like((1, 1 << 17, 1, 1 << 17), calls[1]) == calls[0]
    assert table.launched_like((1, 1 << 20, 1, 1 << 20), calls[1]) == calls[3]
    assert table.launched_like((1, 1 << 17, 1, 1 << 17), calls[2]) == calls[2]


def test_the_calls_nearest_in_size_that_were_measured_in_loops_tell_what_loops_take() -> None:
    sizes = 1 << 16, 1 << 18, 1 << 20, 1 << 22
    calls = [
        MeasuredCall((1, size, 1, size), (0,), (9_000,), (), (), repeats)
        for size, repeats in zip(sizes, ((8_000, 1_000), (), (9_000, 1_500), (9_000, 2_000)), strict=True)
    ]
    table = CostTable(FAMILIES["indexing"], "float32 gather", calls, _H200)

    found = table.repeated((1, 1 << 16, 1, 1 << 16), _H200)
    assert found[0][0] == calls[0]
    assert found[0][1] > 0.99
    between = table.repeated((1, 1 << 21, 1, 1 << 21), _H200)
    assert sum(weight for _, weight in between) == pytest.approx(1)
    assert sum(weight * math.log2(call.dims[1]) for call, weight in between) == pytest.approx(21, abs=0.1)
    assert CostTable(FAMILIES["indexing"], "float32 gather", calls[1:2], _H200).repeated((1, 8, 1, 8), _H200) == []


@pytest.mark.parametrize(("size", "of_smaller"), [(1 << 19, 0.5), (1 << 21, 0.72), (1 << 23, 0.28)])
def test_a_loop_is_more_like_one_that_loses_as_much_of_its_data_from_the_cache(size: int, of_smaller: float) -> None:
    """It moves 7, 27 or 107 % of the L2 cache; the measured loops half as much and twice as much."""
    sizes = size >> 1, size << 1
    calls = [MeasuredCall((1, each, 1, each), (0,), (9_000,), (), (), (8_000, 1_000)) for each in sizes]
    table = CostTable(FAMILIES["indexing"], "float32 gather", calls, _H200)
    weights = {call.dims[1]: weight for call, weight in table.repeated((1, size, 1, size), _H200)}

    assert weights[sizes[0]] == pytest.approx(of_smaller, abs=0.01)


@pytest.mark.parametrize(
    "row",
    [
        [1, 2, 3],
        [1, 2, 3, 4, 5, 7, 10],
        [1, 2, 3, 4, "x", 0, 10],
        [1, 0, 3, 4, 5, 0, 10],
        [1, 2, 3, 4, 10**400, 0, 10],
        [1, 2, 3, 4, 5, 0, [1, 2]],
        [1, 2, 3, 4, 5, 0, 9, [], [1, 2]],
        [1, 2, 3, 4, 5, 0, 9, [], [], 4_000],
        [1, 2, 3, 4, 5, 0, 9, [], [], [4_000, 0]],
        [1, 2, 3, 4, 5, 0, 9, [], [], [4_000, 1_000], 1],
        [1, 2, 3, 4, 5, 0, 9, [], "x"],
        [1, 2, 3, 4, 5, 0, 9, [], -5],
        [1, 2, 3, 4, 5, 0, 9, [], None],
        [1, 2, 3, 4, 5, 0, 9, [], 1 << 40],
    ],
)
def test_a_row_of_another_form_is_refused(row: list[object]) -> None:
    with pytest.raises(UsageError, match=r"^not a GPU's description: \["):
        of_rows(as_json([row]), 5, [(0,)])


@pytest.mark.parametrize("table", [b"{}", b"[7]", b"7", b"[["])
def test_a_table_of_another_form_is_refused(table: bytes) -> None:
    with pytest.raises(UsageError, match=r"^not a GPU's description"):
        of_rows(Raw(table), 5, [(0,)])


def test_a_sum_on_a_slower_gpu_has_no_jumps() -> None:
    """Each size is 0.04 % larger than the one before: so is its time, or nearly."""
    slow = Roofline(4.4e3, 53e3, 230, 280, 4 << 20, 1.5e3, 900, 40)
    calls = [
        MeasuredCall((1, size, 1, size), (0,), (3 * (900 + size // 1_000),)) for size in (1 << 16, 1 << 20, 1 << 24)
    ]
    table = CostTable(FAMILIES["reduction"], "float32 sum KR", calls, _H200)
    times = [table.ask((1, size, 1, size), slow).total_ns for size in range(1_000_000, 1_200_000, 400)]
    assert all(after < 1.05 * before for before, after in pairwise(times))
