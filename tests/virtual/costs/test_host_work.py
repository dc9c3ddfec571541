"""How long operators on tensors of the CPU take on the modelled host."""

from __future__ import annotations

import pytest

from unstall.virtual.costs.gpu_file import gpu_named
from unstall.virtual.costs.host_work import host_work_ns
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.costs.signature import Signature, TensorSpec, contiguous_strides

HOST = HostCosts(
    cores=4,
    flops_per_us=10_000,
    scalar_flops_per_us=1_000,
    cached_bytes=1 << 20,
    cached_bytes_per_us=40_000,
    memory_bytes_per_us=10_000,
    all_memory_bytes_per_us=25_000,
    page=1_000,
)
T4 = gpu_named("t4").host


def _tensor(*sizes: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(dtype, sizes, contiguous_strides(sizes))


def _add(x: TensorSpec) -> Signature:
    return Signature("aten::add", "Tensor", (x, x), (x,))


def _product(size: int, dtype: str = "float32") -> Signature:
    x = _tensor(size, size, dtype=dtype)
    return Signature("aten::mm", "", (x, x), (x,))


def _sum_of_products(host: HostCosts, threads: int) -> int:
    x = _tensor(10_000, 64)
    calls = (
        Signature("aten::mul", "Tensor", (x, x), (x,)),
        Signature("aten::sum", "dim_IntList", (x, (-1,), False, None), (_tensor(10_000),)),
    )
    return sum(host_work_ns(call, threads, host) for call in calls)


def _batched(host: HostCosts, threads: int) -> int:
    rows, columns = _tensor(10_000, 1, 64), _tensor(10_000, 64, 1)
    return host_work_ns(Signature("aten::bmm", "", (rows, columns), (_tensor(10_000, 1, 1),)), threads, host)


@pytest.mark.parametrize(
    ("ns", "seen_us"),
    [
        (_sum_of_products(T4, 1), 457),
        (_batched(T4, 1), 941),
        (_sum_of_products(T4, 2), 457),
        (_batched(T4, 2), 577),
    ],
)
def test_operators_take_on_the_host_of_a_t4_what_was_seen_there(ns: int, seen_us: int) -> None:
    assert seen_us / 1.25 < ns / 1e3 < seen_us * 1.25


def test_bytes_that_fit_the_caches_move_at_their_rate_and_others_at_that_of_memory() -> None:
    assert host_work_ns(_add(_tensor(30_000)), 1, HOST) == 3 * 4 * 30_000 / 40
    assert host_work_ns(_add(_tensor(300_000)), 1, HOST) == 3 * 4 * 300_000 / 10


def test_threads_share_the_bandwidth_of_memory() -> None:
    assert host_work_ns(_add(_tensor(300_000)), 2, HOST) == 3 * 4 * 300_000 / 20
    assert host_work_ns(_add(_tensor(300_000)), 4, HOST) == 3 * 4 * 300_000 / 25


def test_a_product_goes_by_its_flops() -> None:
    assert host_work_ns(_product(1_000), 1, HOST) == 2 * 1_000**3 / 10
    assert host_work_ns(_product(1_000), 4, HOST) == 2 * 1_000**3 / 40
    assert host_work_ns(_product(1_000, "float64"), 1, HOST) == 2 * 1_000**3 / 5


def test_no_more_threads_than_cores_and_all_of_them_if_the_program_sets_none() -> None:
    assert host_work_ns(_product(1_000), 64, HOST) == host_work_ns(_product(1_000), 4, HOST)
    assert host_work_ns(_product(1_000), 0, HOST) == host_work_ns(_product(1_000), 4, HOST)


def test_few_elements_are_worked_on_by_one_thread() -> None:
    small = _add(_tensor(30_000))
    assert host_work_ns(small, 4, HOST) == host_work_ns(small, 1, HOST)


def test_functions_and_random_numbers_take_time_by_the_element() -> None:
    x = _tensor(100_000)
    exp = host_work_ns(Signature("aten::exp", "", (x,), (x,)), 1, HOST)
    normal = Signature("aten::normal_", "", (x, ("s", True), ("s", True), None), (x,))
    assert exp == 100_000 * 80 / 10
    assert host_work_ns(normal, 1, HOST) == 100_000 * 400 / 10
    assert host_work_ns(normal, 4, HOST) == host_work_ns(normal, 1, HOST)  # one generator


def test_large_results_are_on_pages_that_nobody_used_before() -> None:
    large = _tensor(16 << 20)
    pages = (64 << 20) // 4_096
    fresh = host_work_ns(_add(large), 1, HOST)
    in_place = host_work_ns(Signature("aten::add_", "Tensor", (large, large), (large,)), 1, HOST)
    assert fresh - in_place == pages * 1_000
    empty = Signature("aten::empty", "memory_format", ((16 << 20,), None, None, None, False), (large,))
    assert host_work_ns(empty, 1, HOST) == pages * 1_000


def test_pinned_pages_are_no_cost_of_the_operator_that_pins_them() -> None:
    empty = Signature("aten::empty", "memory_format", ((16 << 20,), None, None, None, True), (_tensor(16 << 20),))
    assert host_work_ns(empty, 1, HOST) == 0


def test_a_call_that_no_family_knows_uses_each_tensor_once() -> None:
    table, index, out = _tensor(10_000), _tensor(dtype="int64"), _tensor()
    assert host_work_ns(Signature("aten::index_select", "", (table, 0, index), (out,)), 1, HOST) <= (40_000 + 12) / 40


def test_attention_of_the_cpu_is_priced_as_that_of_a_device() -> None:
    x = _tensor(2, 8, 512, 64)
    call = Signature("aten::_scaled_dot_product_flash_attention_for_cpu", "", (x, x, x, ("s", False), False), (x,))
    assert host_work_ns(call, 1, HOST) == pytest.approx(4 * 16 * 512 * 512 * 64 / 10)


@pytest.mark.parametrize("name", ["index", "gather", "index_add_", "scatter_add_", "index_put_"])
def test_a_lookup_takes_no_longer_in_a_larger_table(name: str) -> None:
    index, rows = _tensor(128, 64, dtype="int64"), _tensor(128, 64)
    small, large = (_tensor(count, 64) for count in (1_000, 1_000_000))

    def of(table: TensorSpec) -> int:
        result = (table,) if name.endswith("_") else (rows,)
        return host_work_ns(Signature(f"aten::{name}", "", (table, 0, index, rows), result), 1, HOST)

    assert of(small) == of(large)
