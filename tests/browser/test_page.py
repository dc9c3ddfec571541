"""The page around the timeline: verdict, accounts, findings, lines, notes."""

from __future__ import annotations

import re

import msgspec
import pytest
from browser.conftest import Open
from browser.opened import Opened
from report.rendered import as_html
from report.sample import NO_DEVICE, TYPICAL
from report.timelines import drawn, training_step

pytestmark = pytest.mark.browser

PAGE = as_html(TYPICAL, drawn(training_step()))


@pytest.fixture
def page(opened: Open) -> Opened:
    return opened(PAGE)


def test_it_opens_with_the_verdict(page: Opened) -> None:
    assert page.text("h1") == TYPICAL.verdict.text
    assert page.page.title() == "resnet50.json.gz · unstall"


def test_of_a_long_verdict_the_first_sentence_is_the_title(opened: Open) -> None:
    verdict = msgspec.structs.replace(TYPICAL.verdict, text="Launch-bound: 91.2 % idle. Busy 8.0 %. Rest.")
    page = opened(as_html(msgspec.structs.replace(TYPICAL, verdict=verdict)))

    assert page.text("h1") == "Launch-bound: 91.2 % idle."
    assert page.text("h1 + p") == "Busy 8.0 %. Rest."


def test_many_findings_are_folded_after_the_first_dozen(opened: Open) -> None:
    page = opened(as_html(msgspec.structs.replace(TYPICAL, findings=TYPICAL.findings[:1] * 20)))

    assert page.page.locator(".finding:visible").count() == 12
    assert page.text(".folded > summary") == "8 smaller findings"


def test_the_bar_is_as_wide_as_its_parts_and_each_as_its_share(page: Opened) -> None:
    bar = page.page.locator(".bar").first
    segments = bar.locator(".segment")
    widths = [segments.nth(i).bounding_box()["width"] for i in range(segments.count())]

    assert widths[0] / sum(widths) == pytest.approx(110_730_981 / 172_913_004, abs=0.01)
    assert sum(widths) == pytest.approx(bar.bounding_box()["width"], abs=12)
    assert "compute 64.0 %" in bar.get_attribute("aria-label")


def test_the_legend_gives_each_part_and_its_exact_figure_when_pointed_at_or_focused(page: Opened) -> None:
    row = page.page.locator(".legend li", has_text="launches more slowly")
    assert re.split(r"\s*\n\s*", row.inner_text())[-2:] == ["21.1 %", "12.2 ms"]

    row.hover()
    assert "36,552,004 ns of 172,913,004 ns" in page.text(".tooltip")
    page.page.mouse.move(0, 0)
    row.focus()
    assert "36,552,004 ns of 172,913,004 ns" in page.text(".tooltip")


def test_findings_stand_in_the_results_order_with_their_place_and_figures(page: Opened) -> None:
    costly = [finding for finding in TYPICAL.findings if not finding.harmless]
    shown = page.page.locator(".findings").first.locator(".finding")

    assert shown.locator("summary b").all_inner_texts() == [finding.title for finding in costly]
    assert "/home/ada/projects/vision/train.py:41" in shown.nth(1).inner_text().replace("\n", "")
    assert shown.nth(1).locator(".cost").all_inner_texts() == ["4.13 ms\nexposed", "20.6 ms\nhost waits"]
    text = shown.nth(1).inner_text()
    assert costly[1].saw in text
    assert costly[1].fix in text
    assert costly[1].safe_if in text
    assert "high confidence" in text


def test_figures_are_said_to_be_per_step_and_counts_are_too(page: Opened) -> None:
    assert page.page.locator("main h2").all_inner_texts() == [
        "Where the time went, per step",
        "Findings, per step",
        "Timeline",
        "Kernels, per step",
        "Cost by line, per step",
        "Integrity",
    ]
    assert "770x a step" in page.text(".finding")
    launches = page.page.locator(".lines thead th").all_inner_texts().index("Launches")
    assert page.page.locator(".lines tbody tr").first.locator("td").nth(launches).inner_text() == "770"


def test_of_a_run_without_steps_figures_are_in_all(opened: Open) -> None:
    steps = msgspec.structs.replace(TYPICAL.steps, found_by="whole", name=None, count=1)
    page = opened(as_html(msgspec.structs.replace(TYPICAL, steps=steps)))

    assert page.page.get_by_role("heading", name="Findings, in all").is_visible()
    assert "2,310x" in page.text(".finding-foot")


def test_findings_use_the_words_of_the_other_formats(page: Opened) -> None:
    assert page.page.locator(".finding").nth(1).locator("dt").all_inner_texts() == [
        "Saw in 3 steps",
        "Do",
        "Safe if",
        "From",
    ]


def test_a_finding_that_can_be_opened_or_closed_shows_it(page: Opened) -> None:
    mark = "e => getComputedStyle(e, '::after').content"
    summary = page.page.locator(".finding > summary").first
    assert "▾" in summary.evaluate(mark)
    summary.click(position={"x": 20, "y": 10})
    assert "▸" in summary.evaluate(mark)


def test_without_device_work_there_are_neither_accounts_nor_findings_to_speak_of(opened: Open) -> None:
    page = opened(as_html(NO_DEVICE))

    assert page.page.locator("main h2").all_inner_texts() == ["Timeline", "Cost by line, in all", "Integrity"]


def test_in_a_narrow_window_a_findings_number_stands_beside_its_title(opened: Open) -> None:
    page = opened(PAGE, width=390, height=844)
    summary, title = (page.page.locator(place).first.bounding_box() for place in (".finding > summary", ".finding b"))

    assert title["y"] - summary["y"] < 15


def test_a_gain_is_shown_once_there_is_one(opened: Open) -> None:
    finding = msgspec.structs.replace(TYPICAL.findings[0], gain_ns=9_000_000)
    page = opened(as_html(msgspec.structs.replace(TYPICAL, findings=(finding,))))

    assert page.page.locator(".cost").all_inner_texts()[0] == "9.00 ms\ngain"


def test_harmless_findings_are_folded_away(page: Opened) -> None:
    title = page.page.get_by_text("nonzero() makes the host wait for the device")
    assert not title.is_visible()

    page.page.locator(".harmless > summary").click()
    assert title.is_visible()


def test_what_is_paid_once_stands_apart_with_its_time_in_all(opened: Open) -> None:
    first_use = msgspec.structs.replace(
        TYPICAL.findings[-1], title="the first use of CUDA", exposed_ns=2_000_000, harmless=True, once=True
    )
    page = opened(as_html(msgspec.structs.replace(TYPICAL, findings=(*TYPICAL.findings, first_use))))
    folded = page.page.locator(".once")
    assert folded.locator("> summary").inner_text() == "Paid once, not by each step: 1 thing"

    folded.locator("> summary").click()
    assert folded.get_by_text("the first use of CUDA").is_visible()
    assert folded.locator(".cost-ns").first.inner_text() == f"{2 * TYPICAL.steps.count:.2f} ms"
    assert "the first use of CUDA" not in page.page.locator(".harmless").inner_text()


def test_lines_sort_by_any_column_both_ways(page: Opened) -> None:
    places = page.page.locator(".lines tbody td:first-child .code")
    page.page.get_by_role("button", name="Host waits", exact=True).click()
    assert places.first.inner_text().endswith("train.py:41")
    assert page.page.locator(".lines th", has_text="Wait").get_attribute("aria-sort") == "descending"

    page.page.get_by_role("button", name="Line", exact=True).click()
    assert page.page.locator(".lines th", has_text="Line").get_attribute("aria-sort") == "ascending"
    assert places.all_inner_texts() == sorted(places.all_inner_texts())


def test_lines_filter_by_file_function_and_cause(page: Opened) -> None:
    rows = page.page.locator(".lines tbody tr")
    assert rows.count() == 4
    for text, found in (("backbone", 1), ("train_step", 1), ("input", 1), ("nowhere", 0), ("", 4)):
        page.page.get_by_label("Filter the lines").fill(text)
        assert rows.count() == found


def test_a_line_can_be_found_on_the_timeline(opened: Open) -> None:
    where = msgspec.structs.replace(TYPICAL.lines[0].where, file="train.py", line=41)
    line = msgspec.structs.replace(TYPICAL.lines[0], where=where)
    picture = drawn(training_step(), host_places=["train.py:90 main", *["train.py:41 step"] * 6])
    page = opened(as_html(msgspec.structs.replace(TYPICAL, lines=(line,)), picture))
    page.page.locator(".lines tbody tr").hover()
    page.page.get_by_role("button", name="find", exact=True).click()

    assert page.text(".matches") == "8 matches"


def test_kernels_are_listed_by_name_with_their_device_time_a_step(page: Opened) -> None:
    rows = page.page.locator(".kernels tbody tr")
    total = page.page.evaluate("""() => [...document.querySelectorAll('.kernels td:nth-child(3)')]
        .reduce((sum, cell) => sum + parseFloat(cell.innerText), 0)""")
    assert total == pytest.approx(100, abs=0.2)
    times = [cell.get_attribute("title") for cell in page.page.locator(".kernels td:nth-child(2) span").all()]
    shown = [int(time.removesuffix(" ns").replace(",", "").split(".")[0]) for time in times if time]
    assert len(shown) == rows.count() > 1
    assert shown == sorted(shown, reverse=True)
    page.page.locator(".kernels input").fill("memcpy")
    assert rows.count() == 1


def test_kernels_may_be_those_in_sight_alone(page: Opened) -> None:
    page.page.locator(".board canvas").focus()
    page.press("w", "w", "w", "w", "w", "w")
    page.page.get_by_role("button", name="Of what is in sight").click()
    start, end = page.view
    assert page.text("#kernels-title").startswith("Kernels, of the ")
    assert f"{end - start:,.0f} ns are selected" in str(page.page.locator(".scope span").get_attribute("title"))
    each = "cells => cells.map(cell => parseFloat(cell.title.replaceAll(',', '')))"
    device = page.page.locator(".kernels td:nth-child(2) span").evaluate_all(each)
    assert sum(device) == pytest.approx(end - start, rel=0.01)
    page.press("Escape")
    assert page.text("#kernels-title") == "Kernels, per step"


def test_the_address_of_a_finding_opens_it_wherever_it_is_folded(opened: Open) -> None:
    page = opened(as_html(msgspec.structs.replace(TYPICAL, findings=TYPICAL.findings[:1] * 20)))
    assert page.page.locator(".finding:visible").count() == 12
    page.page.evaluate("location.hash = '#finding-17'")
    page.settle()
    sought = page.page.locator("#finding-17")
    assert sought.get_attribute("open") is not None
    assert sought.locator("dl").is_visible()
    number = "element => getComputedStyle(element, '::before').content"
    assert sought.locator("summary").evaluate(number) == '"17"'
    assert sought.locator("a").get_attribute("href") == "#finding-17"


def test_notes_are_listed_and_missing_things_are_said_at_the_top(opened: Open) -> None:
    page = opened(as_html(NO_DEVICE))

    assert "The file is cut off at byte 10,485,760" in page.text(".warning")
    assert "The file is cut off at byte 10,485,760" in page.text("#integrity")
    assert page.text("h1") == "No work on a device was recorded."


def test_without_events_it_says_why_there_is_no_timeline(opened: Open) -> None:
    page = opened(as_html(TYPICAL))

    assert "made from a saved result" in page.text(".timeline-section")
    assert page.page.locator("canvas").count() == 0
    assert page.page.get_by_text("Show on timeline").count() == 0


def test_what_is_not_drawn_is_said(opened: Open) -> None:
    page = opened(as_html(TYPICAL, drawn(training_step(), limit=8)))

    assert "1 of the deepest Python frames are not drawn" in page.text("#integrity")


def test_the_theme_is_the_systems_until_one_chooses(opened: Open) -> None:
    page = opened(PAGE, theme="dark")
    assert sum(page.variable("page")) < 100

    page.page.get_by_role("button", name="Theme").click()
    assert sum(page.variable("page")) > 600
    page.page.emulate_media(color_scheme="light")
    page.page.emulate_media(color_scheme="dark")
    assert sum(page.variable("page")) > 600


def test_the_question_mark_lists_the_keys(page: Opened) -> None:
    page.press("?")
    assert "next and previous match" in page.text("dialog")
    page.press("Escape")
    assert not page.page.locator("dialog").is_visible()


def test_everything_that_can_be_clicked_can_be_reached_by_tab_and_has_a_name(page: Opened) -> None:
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll("button, input, canvas, [tabindex]")]
            .filter(e => !e.hidden && !e.ariaHidden && !(e.ariaLabel || e.title || e.textContent.trim()))
            .map(e => e.outerHTML)"""
    )
    assert nameless == []

    reached = set()
    for _ in range(80):
        page.page.keyboard.press("Tab")
        reached.add(page.page.evaluate("() => document.activeElement.className || document.activeElement.tagName"))
    assert {"primary", "canvas", "label", "SUMMARY", "INPUT"} <= reached


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800), (2200, 1200)])
def test_the_page_is_never_wider_than_the_window(opened: Open, width: int, height: int) -> None:
    page = opened(PAGE, width=width, height=height)

    assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width


def colours_of(page: Opened, group: str) -> dict[str, tuple[int, int, int]]:
    names = {
        "busy": ("compute", "copy", "both", "comm"),
        "idle": ("sync", "launch", "input", "copy", "allocator", "comm", "startup", "python", "event", "latency"),
    }[group]
    return {name: page.variable(f"{group}-{name}") for name in names}


# Machado, Oliveira and Fernandes 2009: what eyes without green or red cones see, on linear RGB.
SIGHTS = {
    "full": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
}


def lab(colour: tuple[int, int, int], sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* of a colour as it is seen, white point D65."""
    linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    seen = [min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0), 1) for row in SIGHTS[sight]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, seen, strict=True)) for row in to_xyz]
    x, y, z = (
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (xyz[0] / 0.9505, xyz[1], xyz[2] / 1.089)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("group", ["busy", "idle"])
def test_any_two_causes_are_told_apart_by_eyes_that_confuse_red_and_green(opened: Open, theme: str, group: str) -> None:
    colours = colours_of(opened(PAGE, theme=theme), group)
    for sight in SIGHTS:
        seen = {name: lab(colour, sight) for name, colour in colours.items()}
        for one in seen:
            for other in seen:
                apart = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
                assert one == other or apart > 14, (sight, one, other)
