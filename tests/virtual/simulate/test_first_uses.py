"""What first uses cost: of CUDA, of a device, of an operator."""

from __future__ import annotations

from itertools import pairwise
from math import log1p
from typing import Any

import pytest
from virtual.simulate.logs import Fixed
from virtual.simulate.runs import begin, calls

from unstall.virtual.costs.model import ColdCode, Kernel, OperatorCost, Startup
from unstall.virtual.costs.signature import Signature
from unstall.virtual.log import LogCode

STARTUP = Startup(
    init=100_000,
    context=200_000,
    cold=ColdCode(brief_ns=50_000, ns=7_000),
    kernel=1_000,
    libraries=[(30_000, ["6000"])],
    modules=[50_000, 20_000, 35_000, 35_000],
    shared=[(40_000, [2, 3])],
)
LAUNCH, LOADS = "cudaLaunchKernel", "cuLibraryLoadData"


def lengths(*launches: tuple[int, dict[str, Any]], warm: bool = False, devices: int = 1) -> list[tuple[str, int]]:
    """Returns (name, ns) of each call of a program that launches kernels."""
    costs = Fixed()
    costs.startup = STARTUP
    log, simulator = begin(costs=costs, warm=warm, devices=devices)
    for duration, of in launches:
        log.launch(duration, **of)
    return [(name, end - start) for name, start, end in calls(simulator.timeline())]


def test_the_first_launch_pays_for_cuda_the_device_the_module_and_its_kernel() -> None:
    assert lengths((5_000, {}), (5_000, {}), (5_000, {}))[:4] == [
        ("cuInit", 100_000),
        ("cuDevicePrimaryCtxRetain", 200_000),
        (LOADS, 51_000),
        (LAUNCH, 2_000),
    ]


def test_work_on_the_host_before_the_first_use_pays_for_nothing() -> None:
    costs = Fixed()
    costs.startup = STARTUP
    log, simulator = begin(costs=costs)
    log.write(LogCode.MARK_BEGIN, device=-1)
    log.write(LogCode.MARK_END, device=-1)
    before = simulator.now_ns()
    log.launch(5_000)
    assert before < 50_000
    assert calls(simulator.timeline())[0][0] == "cuInit" or calls(simulator.timeline())[1][0] == "cuInit"


def test_another_kernel_of_a_loaded_module_pays_for_itself() -> None:
    assert lengths((5_000, {}), (5_000, {"name": "other"}))[4:] == [(LOADS, 1_000), (LAUNCH, 2_000)]


def test_the_first_of_the_operators_that_need_a_library_sets_it_up() -> None:
    found = lengths((5_000, {}), (6_000, {"name": "other"}), (6_000, {"name": "third"}))
    assert [ns for name, ns in found if name == LOADS] == [51_000, 31_000, 1_000]


def test_the_first_of_the_modules_that_share_something_sets_it_up() -> None:
    found = lengths((5_000, {}), (7_000, {"name": "a", "module": 2}), (7_000, {"name": "b", "module": 3}))
    assert [ns for name, ns in found if name == LOADS] == [51_000, 76_000, 36_000]


def test_a_kernel_that_was_launched_before_is_loaded() -> None:
    assert lengths((5_000, {}), (6_000, {}))[4:] == [(LAUNCH, 2_000)]


def test_kernels_of_unknown_modules_have_one_for_each_operator() -> None:
    unknown: list[tuple[int, dict[str, Any]]] = [
        (7_000, {"name": "unknown", "module": -1}),
        (7_000, {"name": "unknown too", "module": -1}),
    ]
    loads = lengths((5_000, {}), *unknown)
    assert [ns for name, ns in loads if name == LOADS] == [51_000, 35_000 + 1_000, 1_000]


def test_the_first_modules_take_longer() -> None:
    costs = Fixed()
    costs.startup = Startup(early=0.2, modules=[50_000, 20_000, 10_000])
    others: list[tuple[int, dict[str, Any]]] = [
        (5_000, {"name": "b", "module": 1}),
        (5_000, {"name": "c", "module": 2}),
    ]
    assert loads(costs, (5_000, {}), *others) == [60_000, 22_000, 10_667]


def test_each_device_has_a_context_and_loads_its_own_modules() -> None:
    found = lengths((5_000, {}), (5_000, {"device": 1}), devices=2)
    assert [name for name, _ in found].count("cuInit") == 1
    assert [ns for name, ns in found if name in ("cuDevicePrimaryCtxRetain", LOADS)] == [200_000, 51_000] * 2


def test_the_second_call_of_an_operator_takes_longer_than_later_ones() -> None:
    costs = Fixed()
    costs.startup = STARTUP
    log, simulator = begin(costs=costs)
    ends = []
    for _ in range(4):
        log.launch(5_000)
        ends.append(simulator.now_ns())
    second, third, fourth = (after - before for before, after in pairwise(ends))
    assert (second - fourth, third) == (round(7_000 * log1p(51_000 / 50_000)), fourth)


def test_a_warm_machine_pays_for_nothing() -> None:
    assert lengths((5_000, {}), (6_000, {}), warm=True) == [(LAUNCH, 2_000)] * 2


def extras(cold: ColdCode, *launches: tuple[int, dict[str, Any]]) -> list[int]:
    """Returns by how much each launch is longer than the fastest launch of the same operator."""
    costs = Fixed()
    costs.startup = Startup(cold=cold, kernel=1_000, modules=[50_000])
    log, simulator = begin(costs=costs)
    ends = [simulator.now_ns()]
    for duration, of in launches:
        log.launch(duration, **of)
        ends.append(simulator.now_ns())
    ns = [after - before for before, after in pairwise(ends)]
    return [
        each - min(other for other, launch in zip(ns, launches, strict=True) if launch == mine)
        for each, mine in zip(ns, launches, strict=True)
    ]


A: tuple[int, dict[str, Any]] = (5_000, {})
B: tuple[int, dict[str, Any]] = (6_000, {"name": "other"})


def test_loading_makes_the_next_call_of_every_operator_longer() -> None:
    cold = ColdCode(brief_ns=1_000, ns=500, share=0.1)
    _, second, third, _, after_b, warm = extras(cold, A, A, A, B, A, A)
    assert second > after_b > 0
    assert (third, warm) == (0, 0)


def test_the_call_after_a_cold_one_pays_a_part_of_its_extra_time() -> None:
    _, second, third, fourth = extras(ColdCode(brief_ns=1_000, ns=5_000, again=0.2), A, A, A, A)
    assert (third, fourth) == (round(0.2 * second), 0)


def test_an_operator_that_was_measured_has_an_extra_time_of_its_own() -> None:
    usual, own = (
        extras(ColdCode(brief_ns=1_000, ns=500, operators=operators), A, A, A)[1] for operators in ({}, {"5000": 1_500})
    )
    assert own == pytest.approx(3 * usual, rel=0.001)


def test_an_operator_with_plans_pays_for_each_new_shape() -> None:
    costs = Fixed()
    costs.startup = Startup(shapes={"5000": 70_000}, kernel=1_000, modules=[0])
    assert loads(costs, (5_000, {}), (5_000, {}), (5_000, {"kernels": 2})) == [71_000, 70_000]


def test_without_a_cache_on_disk_a_new_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Fixed()
    costs.startup = Startup(compiled={"5000": 300_000}, kernel=1_000, modules=[0])
    launches = A, A, (5_000, {"name": "another"})
    assert loads(costs, *launches) == [1_000, 1_000]
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    assert loads(costs, *launches) == [301_000, 301_000]


class _Sorts(Fixed):
    """An operator 5000 that launches a kernel of its own, and one of another module."""

    def __init__(self) -> None:
        super().__init__()
        self.startup = Startup(kernel=1_000, modules=[50_000, 40_000])

    def cost(self, signature: Signature) -> OperatorCost:
        if signature.name != "5000":
            return super().cost(signature)
        return OperatorCost((Kernel("own", 5_000, module=0), Kernel("shared", 5_000, module=1)))


def loads(costs: Fixed, *launches: tuple[int, dict[str, Any]]) -> list[int]:
    log, simulator = begin(costs=costs)
    for duration, of in launches:
        log.launch(duration, **of)
    return [end - start for name, start, end in calls(simulator.timeline()) if name == LOADS]


def test_an_operator_loads_the_modules_of_all_its_kernels() -> None:
    assert loads(_Sorts(), (5_000, {})) == [2_000 + 50_000 + 40_000]


def test_a_module_that_another_operator_loaded_is_there() -> None:
    sorts = (6_000, {"name": "sort", "module": 1})
    assert loads(_Sorts(), sorts, (5_000, {})) == [1_000 + 40_000, 2_000 + 50_000]
    assert loads(_Sorts(), (5_000, {}), sorts) == [2_000 + 90_000, 1_000]
