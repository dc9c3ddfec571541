"""Memory that is reserved anew for each larger shape."""

from __future__ import annotations

from collections.abc import Sequence

from virtual.simulate.logs import MIB
from virtual.simulate.runs import begin

from unstall.diagnose.explain import explain
from unstall.result import Finding

GIB = 1024 * MIB


def growing(sizes: Sequence[int], *, keep: bool = False) -> list[Finding]:
    """A program whose operator takes a tensor of each size, and gives it back."""
    log, simulator = begin(total_bytes=100 * GIB)
    for size in sizes:
        with log.op("aten::mul"):
            tensor = log.malloc(size)
            log.launch(200_000)
        if not keep:
            log.free(tensor)
    found = explain(simulator.timeline()).result.findings
    return [finding for finding in found if finding.rule == "growing-memory"]


def test_each_larger_shape_reserves_anew_and_the_finding_says_how_much_is_in_use() -> None:
    (finding,) = growing([size * 100 * MIB for size in range(1, 6)])
    assert finding.count == 4
    assert finding.where.op == "aten::mul"
    assert "4 larger requests there, from 200 MiB to 500 MiB, reserved 1.37 GiB" in finding.saw
    assert "the run reserves 1.46 GiB, of which at most 500 MiB are in use at a time (66.7 % is not)" in finding.saw
    assert "unstall.warm_up(forward_and_backward, largest, usual)" in finding.fix


def test_the_largest_first_is_none() -> None:
    assert growing([size * 100 * MIB for size in range(5, 0, -1)]) == []


def test_memory_that_stays_in_use_is_not_wasted() -> None:
    assert growing([size * 100 * MIB for size in range(1, 6)], keep=True) == []


def test_two_sizes_are_no_growth() -> None:
    assert growing([100 * MIB, 200 * MIB] * 5) == []


def test_what_one_segment_holds_is_not_worth_a_word() -> None:
    assert growing([size << 10 for size in (100, 200, 400, 800)]) == []
