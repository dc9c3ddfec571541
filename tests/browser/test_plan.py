"""What replaying adds to the page: gains, the run without the recorder, the plan."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from browser.conftest import Open
from browser.opened import WINDOWS, Opened
from report.answers import PLANNED
from report.rendered import as_html
from report.sample import TYPICAL

from unstall.result import Result

pytestmark = pytest.mark.browser

PAGE = as_html(PLANNED)
COPY = "() => navigator.clipboard.readText()"


@pytest.fixture
def page(opened: Open) -> Opened:
    return opened(PAGE)


def widths(page: Opened, of: str) -> list[float]:
    return [float(part.bounding_box()["width"]) for part in page.page.locator(of).all()]


def test_gains_stand_first_and_in_the_results_order(page: Opened) -> None:
    costs = page.page.locator(".findings").first.locator(".costs")

    assert costs.all_inner_texts()[0].split("\n") == ["2.00 ms", "gain", "12.2 ms", "exposed", "0", "host waits"]
    gains = page.page.locator(".findings").first.locator(".cost:first-child .cost-ns").all_inner_texts()
    assert gains == ["2.00 ms", "400 µs", "0"]


def test_a_gain_that_is_not_known_is_a_dash(opened: Open) -> None:
    findings = (PLANNED.findings[0], msgspec.structs.replace(PLANNED.findings[1], gain_ns=None, edit=None))
    page = opened(as_html(msgspec.structs.replace(PLANNED, findings=findings)))
    row = page.page.locator(".finding").nth(1)

    assert row.locator(".cost").first.inner_text() == "\u2013\ngain"
    assert row.locator(".command").count() == 0


def test_the_edit_is_copied_as_the_command_that_tries_it(page: Opened) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.page.locator(".finding").nth(1).locator(".copy").click()
    page.page.get_by_text("Copied").wait_for()

    assert page.page.evaluate(COPY) == (
        "unstall whatif /home/ada/projects/vision/traces/resnet50.json.gz --edit 'remove-syncs:train.py:41:aten::item'"
    )


def test_the_whole_plan_is_one_command(page: Opened) -> None:
    assert page.text("figure .command code").endswith(
        "--edit 'graph:models/backbone.py:forward' --edit 'remove-syncs:train.py:41:aten::item' -o what_if.html"
    )


def test_a_command_takes_the_recorders_cost_out_as_the_report_did(opened: Open) -> None:
    assert PLANNED.replay is not None
    replay = msgspec.structs.replace(PLANNED.replay, undistorted_by="plain step time", plain_step_ns=43_100_000)
    page = opened(as_html(msgspec.structs.replace(PLANNED, replay=replay)))

    assert page.text(".finding .command code").endswith("--plain-step-ms 43.1")


def test_hostile_names_are_one_word_to_a_shell_and_harmless_to_a_terminal(opened: Open) -> None:
    edit = "graph:a'; rm -rf ~ #.py:f\n\x03\x1b[201~reboot\r"
    finding = msgspec.structs.replace(PLANNED.findings[0], edit=edit)
    source = msgspec.structs.replace(PLANNED.source, path="-rf $(reboot).json")
    page = opened(as_html(msgspec.structs.replace(PLANNED, findings=(finding,), source=source)))
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.page.locator(".finding .copy").click()
    page.page.get_by_text("Copied").wait_for()

    lost = "\ufffd"
    assert page.page.evaluate(COPY) == (
        "unstall whatif './-rf $(reboot).json' "
        f"--edit 'graph:a'\\''; rm -rf ~ #.py:f{lost}{lost}{lost}[201~reboot{lost}'"
    )


def test_the_waterfalls_figures_are_the_results(page: Opened) -> None:
    takes = page.page.locator(".fall-takes").all_inner_texts()
    exactly = [part.get_attribute("title") for part in page.page.locator(".fall-takes").all()]

    assert takes == ["43.0 ms", "41.0 ms", "40.5 ms", "39.5 ms"]
    assert exactly == ["43,000,000 ns", "41,000,000 ns", "40,500,000 ns", "39,453,666 ns"]
    assert page.page.locator(".fall .fall-saves").all_inner_texts() == ["2.00 ms", "500 µs"]
    assert page.text("figcaption").startswith("43.0 ms → 40.5 ms a step, 5.8 % less")


def test_the_waterfall_is_drawn_to_scale(page: Opened) -> None:
    whole = widths(page, ".fall-start .fall-track")[0]

    assert sum(widths(page, ".fall-start i")) == pytest.approx(whole, abs=1)
    assert widths(page, ".fall-gain") == pytest.approx([whole * 2 / 43, whole * 0.5 / 43], abs=1)
    assert widths(page, ".fall-floor i")[0] == pytest.approx(whole * 39.453666 / 43, abs=1)
    tracks = [page.page.locator(".fall-track").nth(i).bounding_box() for i in (1, 2)]
    ends = [page.page.locator(".fall-gain").nth(i).bounding_box() for i in (0, 1)]
    assert ends[0]["x"] - tracks[0]["x"] == pytest.approx(ends[1]["x"] + ends[1]["width"] - tracks[1]["x"], abs=1)


def test_each_edit_has_its_findings_title_and_what_stopped_a_part_of_it(page: Opened) -> None:
    first = page.page.locator(".fall").first.locator(".fall-what")

    assert first.inner_text().split("\n") == [
        f"1{PLANNED.findings[0].title}",
        "graph:models/backbone.py:forward",
        "graph: 2 graphs a step, for the host waits once a step between them, which cannot be captured",
    ]


def test_the_run_without_the_recorder_stands_beside_the_recorded_one_on_one_scale(page: Opened) -> None:
    bars = page.page.locator(".bars .bar")
    recorded, without = (bars.nth(i).bounding_box()["width"] for i in (0, 1))

    assert page.page.locator(".bar-name").all_inner_texts() == ["as recorded", "without the recorder"]
    assert page.page.locator(".bar-about").all_inner_texts() == ["57.6 ms", "43.0 ms"]
    assert without / recorded == pytest.approx(129_000_000 / 172_913_004, abs=0.005)
    launch = page.page.locator(".legend li", has_text="launches more slowly")
    assert re.split(r"\s*\n\s*", launch.inner_text())[-3:] == ["21.1 %", "12.2 ms", "1.10 ms"]


def test_it_says_how_well_the_run_replays_and_how_the_recorders_cost_is_known(page: Opened) -> None:
    assert page.text(".basis") == (
        "Measured with the recorder, a step takes 57.6 ms; its replay takes 57.5 ms, \u22120.2 % off. "
        "Without the recorder it takes 43.0 ms in a long run: estimated from what recording usually costs, "
        "± 25 % or so; "
        "--plain-step-ms makes it sure."
    )
    figures = page.page.locator(".figures > div").all_inner_texts()
    assert figures[:4] == [
        "mean step\n57.6 ms",
        "without the recorder\n≈ 43.0 ms",
        "after the plan\n40.5 ms",
        "floor\n39.5 ms",
    ]


def _with(**changes: Any) -> Result:
    assert PLANNED.replay is not None
    return msgspec.structs.replace(PLANNED, replay=msgspec.structs.replace(PLANNED.replay, **changes))


def test_a_measured_step_is_no_estimate(opened: Open) -> None:
    page = opened(as_html(_with(undistorted_by="plain step time", usual_error=None, plain_step_ns=43_000_000)))

    assert page.page.locator(".figures > div").all_inner_texts()[1] == "without the recorder\n43.0 ms"
    assert "as measured without recording, 43.0 ms" in page.text(".basis")


def test_with_the_recorders_cost_left_in_there_is_no_second_bar(opened: Open) -> None:
    page = opened(as_html(_with(undistorted_by="nothing", usual_error=None)))

    assert page.page.locator(".bar").count() == 1
    assert page.text(".basis").endswith("The recorder's cost is left in.")


def test_a_result_that_was_not_replayed_has_none_of_it(opened: Open) -> None:
    page = opened(as_html(TYPICAL))

    for part in (".waterfall", ".basis", ".command", ".bars"):
        assert page.page.locator(part).count() == 0
    assert "gain" not in page.page.locator(".cost-name").all_inner_texts()


@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_the_plan_fits_any_window_in_any_theme(opened: Open, width: int, theme: str) -> None:
    page = opened(PAGE, width=width, theme=theme)

    assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert widths(page, ".fall-start .fall-track")[0] > width / 4


def test_what_no_edit_tells_is_named_where_the_plan_ends_far_above_the_floor(opened: Open, page: Opened) -> None:
    said = "Not modelled is what is gained by mending this: "
    assert said not in page.text("figure")
    first = msgspec.structs.replace(PLANNED.findings[0], gain_ns=None, edit=None)
    far = msgspec.structs.replace(PLANNED, findings=(first, *PLANNED.findings[1:]), floor_ns=2_000_000)
    page = opened(as_html(far))

    assert page.page.locator("figure .panel-foot").first.inner_text() == (
        f"{said}{first.title}, at {first.where.file}:{first.where.line} (at most 12.2 ms)"
    )
