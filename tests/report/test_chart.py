"""A chart in each renderer: what is drawn, where, and that any values can be drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.sample import HOSTILE

from unstall.document import chart_svg, markdown, static_page, terminal
from unstall.document.chart import as_lines, drawn, largest
from unstall.document.document import Chart, Document, Words, words

LINES = [
    "a chart",
    "1e-2 ┤    ███",
    "     │    ███",
    "1e-3 ┤    ███",
    "     │    ███",
    "1e-4 ┤····███ ····",
    "     │    ▒▒▒ ▒▒▒",
    "1e-5 ┤    ▒▒▒ ▒▒▒",
    "     └────────────",
    "          ▲ here",
    "▒ within   █ beyond   · bound",
]


def chart(values: Sequence[float], bounds: Sequence[float], mark: int | None = None, text: str = "here") -> Chart:
    return Chart(
        title=words("a chart"),
        values=values,
        bounds=bounds,
        within="within",
        beyond="beyond",
        bound="bound",
        most=1.0,
        mark=(mark, words(text)) if mark is not None else None,
    )


def document(block: Chart) -> Document:
    return Document(title="Numbers", about=(), blocks=(block,), data={})


def told(line: Words) -> str:
    return "".join(span.text for span in line)


SMALL = chart([0.0, 0.0299, 5e-5], [2e-4, 2e-4, 2e-4], 1)


def test_a_shade_is_within_the_bound_a_block_beyond_it_and_the_mark_is_below_its_value() -> None:
    assert terminal.render(document(SMALL)).splitlines() == LINES


def test_markdown_has_the_same_lines_as_code() -> None:
    assert markdown.render(document(SMALL)).splitlines()[2:] == [LINES[0], "", "```text", *LINES[1:], "```"]


def test_a_page_has_a_bar_for_what_is_within_and_one_for_what_is_beyond_and_says_the_facts() -> None:
    page = static_page.render(document(SMALL))
    svg = ElementTree.fromstring(page[page.index('<svg viewBox="0 0 720') :].partition("</svg>")[0] + "</svg>")
    paths = {path.get("class"): path.get("d", "") for path in reversed(svg.findall("path"))}
    assert [paths[name].count("M") for name in ("fill", "beyond", "bound")] == [2, 1, 3]
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == (
        "a chart. 3 values; 1 exceed their bound; values other than 0 are from 5e-05 to 0.03; value 2 is marked: here"
    )


def test_values_from_most_on_have_a_row_of_their_own() -> None:
    first = terminal.render(document(chart([math.inf, 7.0, 1e-3], [1e-4] * 3))).splitlines()[1]
    assert first == " ≥ 1 ┤███ ███"


def test_the_largest_share_of_a_stretch_is_drawn_and_the_first_that_leaves_is_marked() -> None:
    values = [1e-7] * 100_000
    values[60_000] = 1e-3
    shown = drawn(chart(values, [1e-5] * 100_000), 50)
    assert [number for number, point in enumerate(shown.points) if point.is_beyond] == [30]
    assert shown.stretch_of(60_000) == 30


def test_parts_of_the_run_are_named_where_their_names_fit() -> None:
    block = Chart(
        title=(),
        values=[1e-3] * 72,
        bounds=[1e-2] * 72,
        within="",
        beyond="",
        bound="",
        sections=((0, "forward"), (30, "backward"), (65, "results")),
    )
    assert f"     └── forward {'─' * 19}┴─ backward {'─' * 23}┴──────" in map(told, as_lines(block, 80))


FIGURES = st.floats(min_value=0) | st.sampled_from([math.nan, math.inf, 0.0, 5e-324, 1.0, 1e-5])


@given(st.lists(st.tuples(FIGURES, FIGURES), max_size=200), st.integers(1, 130), st.sampled_from([*HOSTILE, "mm", ""]))
def test_any_values_are_drawn_and_never_wider_than_the_console(
    pairs: list[tuple[float, float]], width: int, text: str
) -> None:
    values, bounds = [value for value, _ in pairs], [bound for _, bound in pairs]
    block = chart(values, bounds, len(pairs) // 2 if pairs else None, text)
    printed = terminal.render(document(block), width=width).splitlines()
    assert all(len(line) <= width for line in printed if "#" not in line)  # `no_command` may add a blank
    assert sum("┤" in line or "│" in line for line in printed) <= 10
    assert markdown.render(document(block)).count("```text") == bool(pairs)
    if drawing := chart_svg.drawing(block):
        ElementTree.fromstring(f"<div>{drawing}</div>")
        assert "nan" not in drawing.partition(">")[2]


@given(st.lists(FIGURES, max_size=100), st.integers(1, 50))
def test_the_largest_of_stretches_are_in_order_and_the_largest_of_all_is_among_them(
    sizes: list[float], most: int
) -> None:
    sizes = [0.0 if math.isnan(size) else size for size in sizes]
    chosen = largest(sizes, most)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(len(sizes), most)
    assert max((sizes[at] for at in chosen), default=0.0) == max(sizes, default=0.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_leaves_the_elements_of_the_drawing_as_they_are(name: str) -> None:
    hostile, tame = (chart([1e-3], [1e-4], 0, text) for text in (f"x{name}", "tame"))
    elements = [
        [(each.tag, sorted(each.keys())) for each in ElementTree.fromstring(f"<div>{text}</div>").iter()]
        for text in map(chart_svg.drawing, (hostile, tame))
    ]
    assert elements[0] == elements[1]
