"""Memory over time on the page: the plot, its peak, the lines that hold it."""

from __future__ import annotations

import pytest
from browser.conftest import Open
from report.rendered import as_html
from report.sample import TYPICAL, WITH_MEMORY

pytestmark = pytest.mark.browser


def test_memory_is_drawn_with_its_peak_and_the_lines_that_hold_it(opened: Open) -> None:
    page = opened(as_html(WITH_MEMORY))

    assert page.text(".memory figcaption b") == "peak: 60.0 MiB allocated, at 2.50 ms; at most 80.0 MiB reserved"
    rows = page.page.locator(".memory tbody tr")
    assert [row.split() for row in rows.all_inner_texts()] == [
        ["train.py:20", "40.0", "MiB", "66.7", "%", "3"],
        ["allocated", "before", "the", "recording,", "or", "by", "no", "known", "line", "20.0", "MiB", "33.3", "%"],
    ]
    box = page.page.locator(".memory-areas").bounding_box()
    peak = page.page.locator(".memory-peak").bounding_box()
    assert abs((peak["x"] - box["x"]) / box["width"] - 2.5 / 6) < 0.01


def test_a_point_in_time_tells_what_each_line_holds(opened: Open) -> None:
    page = opened(as_html(WITH_MEMORY))
    page.page.locator(".memory-areas").scroll_into_view_if_needed()
    box = page.page.locator(".memory-areas").bounding_box()
    page.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 20)

    assert page.text(".tooltip").split("\n") == [
        "30.0 MiB allocated at 4.00 ms",
        "80.0 MiB reserved",
        "10.0 MiB: train.py:20",
        "20.0 MiB: other lines, or before the recording",
    ]


def test_a_result_without_memory_has_no_plot_of_it(opened: Open) -> None:
    assert opened(as_html(TYPICAL)).page.locator(".memory").count() == 0
