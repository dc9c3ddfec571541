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
    kernels={"5000": 1_000, "6000": 2_000},
    modules=[(50_000, ["5000", "6000"])],
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


def test_an_operator_of_a_module_that_is_loaded_pays_for_its_kernel() -> None:
    assert lengths((5_000, {}), (6_000, {"name": "other"}))[4:] == [(LOADS, 2_000), (LAUNCH, 2_000)]


def test_a_kernel_that_was_launched_before_is_loaded() -> None:
    assert lengths((5_000, {}), (6_000, {}))[4:] == [(LAUNCH, 2_000)]


def test_an_operator_that_was_not_measured_has_a_module_like_the_others() -> None:
    loads = lengths((5_000, {}), (7_000, {"name": "unknown"}), (7_000, {"name": "unknown too"}))
    assert [ns for name, ns in loads if name == LOADS] == [51_000, 50_000 + 1_500, 1_500]


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
    costs.startup = Startup(cold=cold, kernels=STARTUP.kernels, modules=[(50_000, ["5000"])])
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
    costs.startup = Startup(shapes={"5000": 70_000}, kernels={"5000": 1_000})
    assert loads(costs, (5_000, {}), (5_000, {}), (5_000, {"kernels": 2})) == [71_000, 70_000]


def test_without_a_cache_on_disk_a_new_kernel_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Fixed()
    costs.startup = Startup(compiled={"5000": 300_000}, kernels={"5000": 1_000})
    launches = A, A, (5_000, {"name": "another"})
    assert loads(costs, *launches) == [1_000, 1_000]
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "1")
    assert loads(costs, *launches) == [301_000, 301_000]


class _Sorts(Fixed):
    """An operator 5000 that launches a kernel of its own, and one that some other operators launch."""

    def __init__(self, *others: str) -> None:
        super().__init__()
        self.startup = Startup(
            kernels=dict.fromkeys(("5000", *others), 1_000),
            modules=[(ns, [name]) for ns, name in zip((50_000, 40_000, 30_000), ("5000", *others), strict=False)],
        )
        self.launched_by = {"own": {"5000"}, "shared": {"5000", *others}}

    def cost(self, signature: Signature) -> OperatorCost:
        if signature.name != "5000":
            return super().cost(signature)
        return OperatorCost((Kernel("own", 5_000), Kernel("shared", 5_000)))


def loads(costs: Fixed, *launches: tuple[int, dict[str, Any]]) -> list[int]:
    log, simulator = begin(costs=costs)
    for duration, of in launches:
        log.launch(duration, **of)
    return [end - start for name, start, end in calls(simulator.timeline()) if name == LOADS]


def test_an_operator_loads_the_module_of_a_kernel_that_others_launch() -> None:
    assert loads(_Sorts("6000", "7000"), (5_000, {})) == [1_000 + 50_000 + 30_000]


def test_the_module_of_another_operators_kernel_is_loaded_once() -> None:
    sorts = (6_000, {"name": "sort"})
    assert loads(_Sorts("6000", "7000"), sorts, (5_000, {})) == [1_000 + 40_000, 1_000 + 50_000]
    assert loads(_Sorts("6000", "7000"), (5_000, {}), (7_000, {"name": "sort"})) == [81_000, 1_000]


def test_the_time_of_an_operator_may_include_the_module_of_the_only_other_one() -> None:
    assert loads(_Sorts("6000"), (5_000, {})) == [1_000 + 50_000]
