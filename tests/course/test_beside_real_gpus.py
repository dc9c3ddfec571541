"""The virtual H100 beside the real ones of docs/virtual_accuracy.md: rows 1, 4, 12 and 19 of the course."""

from __future__ import annotations

import json
import re
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from unstall.course.figures import figure
from unstall.course.recorded import recorded
from unstall.course.running import run
from unstall.course.table import script, table

_ROOT = Path(__file__).parents[2]
_MACHINES = json.loads((_ROOT / "benchmarks" / "results" / "course_h100_machines.json").read_text("utf-8"))
_H200S = json.loads((_ROOT / "benchmarks" / "results" / "course_h200_machines.json").read_text("utf-8"))
_GPU_BOUND = {
    "mul and sum, with synchronize": ("launches_return_at_once", "with synchronize"),
    "`Linear`, synchronize once": ("the_queue_of_launches", "synchronize once"),
    "copies and a product, one stream": ("copies_beside_a_product", "one stream"),
    "copies beside a product, two streams": ("copies_beside_a_product", "two streams"),
    "2,000 tiny kernels, CUDA graph": ("a_graph_launches_once", "graph"),
}
_HOST_BOUND = {
    "mul and sum, launched only": ("launches_return_at_once", "without synchronize"),
    "2,000 tiny kernels, eager": ("a_graph_launches_once", "eager"),
}
_ALL = _GPU_BOUND | _HOST_BOUND
_PAGE = _ROOT / "docs" / "virtual_accuracy.md"
_LINE = re.compile(r"\| (.+?) \| (.+?) \((\S+) to (\S+)\) \| (.+?) \| (\S+) \|")


def told() -> dict[str, tuple[float, float, float, float, float]]:
    """What the page says: the real median, the least, the most, and the virtual time, in s; and virtual / real."""
    found = {}
    for label, median, least, most, virtual, ratio in _LINE.findall(_PAGE.read_text("utf-8")):
        unit = median.split()[1]
        times = (median, f"{least} {unit}", f"{most} {unit}", virtual)
        a, b, c, d = (figure(label, text).value for text in times)
        found[label] = (a, b, c, d, float(ratio))
    return found


def real(row: str, label: str) -> list[float]:
    """The recorded times in s."""
    return [figure(label, run["figures"][row][label]).value for run in _MACHINES if row in run["figures"]]


def test_the_page_has_the_recorded_times() -> None:
    assert set(told()) == set(_ALL)
    for what, (median, least, most, virtual, ratio) in told().items():
        times = real(*_ALL[what])
        assert (median, least, most) == pytest.approx((statistics.median(times), min(times), max(times)), rel=0.005)
        assert ratio == pytest.approx(virtual / median, abs=0.01)


def test_times_that_include_a_wait_for_the_gpu_are_within_a_fifth() -> None:
    found = told()
    for what in _GPU_BOUND:
        assert 0.8 <= found[what][-1] <= 1.2, what


def _ratios(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """By label, the times of one GPU over those of the other, of rows 1, 4, 12 and 19."""
    return {
        label: figure(label, one[row][label]).value / figure(label, text).value
        for row in sorted({row for row, _ in _ALL.values()})
        for label, text in other[row].items()
        if label in one[row] and figure(label, text).unit == "s"
    }


def _near(ratios: dict[str, float]) -> str:
    return f"{sum(0.8 <= ratio <= 1.2 for ratio in ratios.values())} of {len(ratios)}"


def test_the_page_says_how_many_times_of_the_virtual_h200_are_near_those_of_real_ones() -> None:
    real = [machine["figures"] for machine in _H200S]
    virtual = recorded()["H200 (virtual)"].figures
    beside = [_ratios(virtual, each) for each in real]
    waiting = [label for row, label in _GPU_BOUND.values() if label in real[0][row]]
    assert all(0.8 <= ratios[label] <= 1.25 for ratios in beside for label in waiting)
    page = _PAGE.read_text("utf-8")
    of_each_other = [_ratios(other, one) for one, other in combinations(real, 2)]
    assert f"20 % | {'; '.join(map(_near, beside))} | {'; '.join(map(_near, of_each_other))} |" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, _ in _ALL.values()}))
def test_the_virtual_h100_takes_the_times_of_the_page(name: str) -> None:
    found = {each.label: each.value for each in run(script(name), table()[name], "h100").figures}
    for what, (row, label) in _ALL.items():
        if row == name:
            assert told()[what][3] == pytest.approx(found[label], rel=0.01), f"docs/virtual_accuracy.md: {what}"
