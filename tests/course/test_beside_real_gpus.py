"""The virtual H200 and H100 beside the real ones of docs/virtual_accuracy.md: rows 1, 4, 12 and 19 of the course."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from unstall.course.figures import figure
from unstall.course.recorded import recorded
from unstall.course.running import run
from unstall.course.table import script, table

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "virtual_accuracy.md").read_text("utf-8")
_TIMES = {
    "mul and sum, with synchronize": ("launches_return_at_once", "with synchronize"),
    "mul and sum, launched only": ("launches_return_at_once", "without synchronize"),
    "`Linear`, synchronize after each": ("the_queue_of_launches", "synchronize after each"),
    "`Linear`, synchronize once": ("the_queue_of_launches", "synchronize once"),
    "`Linear`, launched only": ("the_queue_of_launches", "no synchronize"),
    "copies and a product, one stream": ("copies_beside_a_product", "one stream"),
    "copies beside a product, two streams": ("copies_beside_a_product", "two streams"),
    "2,000 tiny kernels, eager": ("a_graph_launches_once", "eager"),
    "2,000 tiny kernels, CUDA graph": ("a_graph_launches_once", "graph"),
}
_LINE = re.compile(r"\| (.+?) \| (\S+ \w+) \((\S+) to (\S+)\) \| (\S+ \w+) \| (\S+) \|")
_ROWS = sorted({row for row, _ in _TIMES.values()})


def told(gpu: str) -> dict[str, tuple[float, float, float, float, float]]:
    """What the page says of a GPU: the real median, the least, the most, and the virtual time, in s; virtual / real."""
    found = {}
    section = _PAGE.split(f"\n## The {gpu.upper()}\n")[1].split("\n## ")[0]
    for what, median, least, most, virtual, ratio in _LINE.findall(section):
        unit = median.split()[1]
        times = (median, f"{least} {unit}", f"{most} {unit}", virtual)
        a, b, c, d = (figure(what, text).value for text in times)
        found[what] = (a, b, c, d, float(ratio))
    return found


def real(gpu: str, row: str, label: str) -> list[float]:
    """The recorded times in s."""
    runs = json.loads((_ROOT / "benchmarks" / "results" / f"course_{gpu}_machines.json").read_text("utf-8"))
    shown = (run["figures"].get(row, {}).get(label) for run in runs)
    return [figure(label, text).value for text in shown if text is not None]


@pytest.mark.parametrize("gpu", ["h200", "h100"])
def test_the_page_has_the_recorded_times(gpu: str) -> None:
    page = told(gpu)
    assert len(page) >= 6
    assert set(page) <= set(_TIMES)
    for what, (median, least, most, virtual, ratio) in page.items():
        times = real(gpu, *_TIMES[what])
        assert (median, least, most) == pytest.approx((statistics.median(times), min(times), max(times)), rel=0.005)
        assert ratio == pytest.approx(virtual / median, abs=0.01)


def test_the_virtual_h200_is_within_a_fifth_of_the_median_of_real_ones() -> None:
    virtual = recorded()["H200 (virtual)"].figures
    page = told("h200")
    assert set(page) == set(_TIMES)
    for what, (row, label) in _TIMES.items():
        assert page[what][3] == figure(label, virtual[row][label]).value
        assert 0.8 <= page[what][-1] <= 1.2, what


def test_times_of_the_virtual_h100_that_include_a_wait_for_the_gpu_are_within_a_fifth() -> None:
    page = told("h100")
    for what in set(page) - {"mul and sum, launched only", "`Linear`, launched only", "2,000 tiny kernels, eager"}:
        assert 0.8 <= page[what][-1] <= 1.2, what


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["h200", "h100"])
@pytest.mark.parametrize("name", _ROWS)
def test_a_virtual_gpu_takes_the_times_of_the_page(gpu: str, name: str) -> None:
    found = {each.label: each.value for each in run(script(name), table()[name], gpu).figures}
    page = told(gpu)
    for what, (row, label) in _TIMES.items():
        if row == name and what in page:
            assert page[what][3] == pytest.approx(found[label], rel=0.01), f"docs/virtual_accuracy.md: {what}"
