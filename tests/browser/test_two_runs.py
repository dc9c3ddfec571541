"""The pages of `whatif` and `diff`: two runs, their accounts on one scale and their timelines held together."""

from __future__ import annotations

import msgspec
import pytest
from browser.conftest import Open
from browser.opened import WINDOWS, Opened
from report.answers import ANSWER, COMPARED, PAIR, run
from report.rendered import as_html

from unstall.result import Where

pytestmark = pytest.mark.browser

WHAT_IF = as_html(ANSWER, *PAIR)
DIFF = as_html(COMPARED, *PAIR)
EDGE = 0.015 * 1_000_000  # shown before and after a step of the longer run


@pytest.fixture
def diff(opened: Open) -> Opened:
    """A of two steps of 1 ms from 50 µs on, B of three of 400 µs from 20 µs on."""
    return opened(DIFF)


def views(page: Opened) -> list[tuple[float, float]]:
    found = []
    for number in (0, 1):
        page.run = number
        found.append(page.view)
    page.run = 0
    return found


def focus(page: Opened, number: int) -> None:
    page.page.locator(".board canvas").nth(number).focus()


# What the pages say.


def test_what_if_opens_with_its_conclusion_and_the_edits_in_order(opened: Open) -> None:
    page = opened(WHAT_IF)

    assert page.page.title() == "resnet50.json.gz, what if · unstall"
    assert page.text("h1") == "A step would take 40.5 ms instead of 43.0 ms: 5.8 % less."
    assert page.page.locator(".fall-takes").all_inner_texts() == ["43.0 ms", "40.0 ms", "40.5 ms", "40.5 ms", "39.5 ms"]
    assert page.page.locator(".fall .fall-saves").all_inner_texts() == ["3.00 ms", "\u2212500 µs", "nothing"]
    assert page.page.locator(".fall-saves.is-loss").count() == 1
    assert "Launches become graphs." in page.text(".fall")
    assert "2 graphs a step" in page.text(".fall")


def test_what_if_without_an_edit_says_how_well_the_run_replays(opened: Open) -> None:
    page = opened(as_html(msgspec.structs.replace(ANSWER, edits=(), predicted_step_ns=43_000_000)))

    assert page.text("h1") == "A step takes 43.0 ms."
    assert page.page.locator(".fall").count() == 0
    assert "its replay takes 57.5 ms, \u22120.2 % off" in page.page.locator("main").inner_text()
    assert "measured without recording" in page.text(".fall-start")
    assert "saved answer" in page.text(".timeline-section")


@pytest.mark.parametrize(
    ("html", "names", "ratio", "launch"),
    [
        (WHAT_IF, ["before", "after"], 121 / 129, ["1.10 ms", "0", "\u22121.10 ms"]),
        (DIFF, ["A", "B"], 43_000_000 / 57_637_668, ["20.6 ms", "5.50 ms", "\u221215.1 ms"]),
    ],
)
def test_both_accounts_are_on_one_scale(
    opened: Open, html: str, names: list[str], ratio: float, launch: list[str]
) -> None:
    page = opened(html)
    one, other = (page.page.locator(".bars .bar").nth(i).bounding_box()["width"] for i in (0, 1))
    row = page.page.locator(".legend li", has_text="launches more slowly")

    assert page.page.locator(".bar-name").all_inner_texts() == names
    assert other / one == pytest.approx(ratio, abs=0.005)
    assert row.inner_text().split("\n")[-3:] == launch


def test_diff_opens_with_its_summary_and_what_limits_it(diff: Opened) -> None:
    assert diff.page.title() == "before.json.gz → after.json.gz · unstall"
    assert diff.text("h1") == "B is 1.34x faster: 43.0 ms a step instead of 57.6 ms."
    assert "Versions differ: torch 2.10 in A, 2.11 in B." in diff.text(".caveats")
    figures = diff.page.locator(".figures > div").all_inner_texts()
    assert figures == [
        "a step in A\n57.6 ms",
        "a step in B\n43.0 ms",
        "change\n\u221214.6 ms",
        "noise\n± 1.00 ms",
        "bound by\nlaunch → device",
    ]


def cells(page: Opened, section: str) -> list[str]:
    row = page.page.locator(f"section[aria-labelledby={section}-title] tbody tr").first
    return [" ".join(text.split()) for text in row.locator("td").all_inner_texts()]


def test_diff_lists_what_changed(diff: Opened) -> None:
    assert cells(diff, "waits")[1:] == ["gone", "1 → 0", "20.6 ms → 0", "4.13 ms → 0", "\u22124.13 ms"]
    assert cells(diff, "copies")[1:] == ["changed", "1", "36.8 MiB", "2.14 ms → 714 µs", "\u22121.43 ms"]
    assert cells(diff, "kernels")[1:] == ["new", "0 → 2.5", "0 → 500 µs", "+500 µs"]
    assert cells(diff, "lines")[1:] == ["noise", "15.0 ms", "5.00 ms → 4.90 ms", "0", "\u2212100 µs"]
    assert cells(diff, "launches") == ["calls that launch", "770", "2"]
    assert "host to device, became pinned, non-blocking" in cells(diff, "copies")[0]
    assert cells(diff, "lines")[0].startswith("train.py:41 → 44 step · aten::item")


def test_a_change_of_which_one_run_knows_the_place_has_that(opened: Open) -> None:
    change = msgspec.structs.replace(COMPARED.kernels[0], status="changed", where_a=Where())
    page = opened(as_html(msgspec.structs.replace(COMPARED, kernels=(change,)), *PAIR))

    assert cells(page, "kernels")[0].endswith("(int) train.py:44 step · aten::item")


def test_runs_that_cannot_be_compared_are_still_shown(opened: Open) -> None:
    summary = msgspec.structs.replace(COMPARED.summary, faster=None, ratio=None, text="These runs cannot be compared.")
    alone = msgspec.structs.replace(
        COMPARED, summary=summary, step_ns=None, accounts=(), waits=(), copies=(), launches=None, kernels=(), lines=()
    )
    page = opened(as_html(alone, *PAIR))

    assert page.page.locator("main h2").all_inner_texts() == ["Before you compare", "Timelines"]
    assert page.page.locator(".timeline").count() == 2


def test_a_change_is_found_on_both_timelines(diff: Opened) -> None:
    row = diff.page.locator("section[aria-labelledby=kernels-title] tbody tr")
    row.hover()
    row.get_by_role("button", name="find").click()

    assert diff.text(".matches") == "0 + 0 matches"


# The timelines.


def test_at_first_both_show_the_first_step_for_as_long_as_the_longer_takes(diff: Opened) -> None:
    one, other = views(diff)

    assert one == pytest.approx((50_000 - EDGE, 1_050_000 + EDGE))
    assert other == pytest.approx((20_000 - EDGE, 1_020_000 + EDGE))
    assert diff.data("zero") == "50000"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("keys", ["w", "wwd", "sa", "wwwdd"])
def test_locked_they_move_and_zoom_together(diff: Opened, number: int, keys: str) -> None:
    before = views(diff)
    focus(diff, number)
    diff.press(*keys)
    one, other = views(diff)

    assert [one, other] != before
    assert one[0] - other[0] == pytest.approx(30_000)
    assert one[1] - other[1] == pytest.approx(30_000)


@pytest.mark.parametrize("number", [0, 1])
def test_apart_each_is_on_its_own(diff: Opened, number: int) -> None:
    diff.page.get_by_role("button", name="Locked").click()
    before = views(diff)
    focus(diff, number)
    diff.press("w", "d")
    after = views(diff)

    assert after[1 - number] == before[1 - number]
    assert after[number] != before[number]
    assert diff.data("zero") == "50000"


def test_locked_again_the_other_comes_to_the_one_used_last_at_its_step(diff: Opened) -> None:
    focus(diff, 0)
    diff.press("k", "w", *"ddddd", "k")
    one, other = views(diff)

    assert (one[0] + one[1]) / 2 > 1_050_000
    assert one[0] - other[0] == pytest.approx(1_050_000 - 420_000)
    assert diff.text(".step-of") == "step 2 of 2"


def test_dragging_one_drags_the_other(diff: Opened) -> None:
    focus(diff, 1)
    diff.press("w", "w")
    diff.run = 1
    box = diff.canvas()
    diff.page.mouse.move(box["x"] + 400, box["y"] + 60)
    diff.page.mouse.down()
    diff.page.mouse.move(box["x"] + 300, box["y"] + 60, steps=4)
    diff.page.mouse.up()
    one, other = views(diff)

    assert one[0] - other[0] == pytest.approx(30_000)
    assert one[0] > 50_000


def test_steps_are_walked_through_in_both(diff: Opened) -> None:
    diff.page.get_by_label("Next step").click()
    one, other = views(diff)
    assert one[0] == pytest.approx(1_050_000 - EDGE)
    assert other[0] == pytest.approx(420_000 - EDGE)
    assert diff.text(".step-of") == "step 2 of 2"

    diff.press(".")
    assert views(diff) == [one, other]
    diff.press(",")
    assert views(diff)[0][0] == pytest.approx(50_000 - EDGE)


def test_f_shows_the_step_then_all_steps_then_all_there_is_of_both(diff: Opened) -> None:
    start = views(diff)
    diff.press("f")
    assert views(diff)[0] == pytest.approx((50_000, 2_050_000))
    diff.press("f")
    assert views(diff) == [pytest.approx(view) for view in start]


def test_search_is_in_both_and_goes_through_the_one_used_last(diff: Opened) -> None:
    diff.press("/")
    diff.page.keyboard.type("cuda")
    diff.page.locator(".matches", has_text="2 + 3 matches").wait_for()
    diff.page.keyboard.press("Escape")
    focus(diff, 1)
    diff.press("n")

    assert diff.text(".matches") == "B: 3 of 3"
    assert diff.text(".details h3") == "cudaLaunchKernel"
    assert "Run\nB" in diff.text(".details dl")


def test_one_event_is_selected_at_a_time(diff: Opened) -> None:
    diff.click("GPU 0 stream 7", 800_000)
    assert diff.text(".details h3") == "gemm"
    diff.run = 1
    diff.click("GPU 0 stream 7", 350_000)

    assert diff.text(".details h3") == "fused"
    assert diff.data("selected") != ""
    diff.run = 0
    assert diff.data("selected") == ""
    diff.press("Escape")
    assert diff.page.locator(".details").is_hidden()


def test_what_is_pointed_at_in_one_is_marked_in_the_other(opened: Open) -> None:
    diff = opened(DIFF, height=1800)
    mark = diff.variable("mark")
    diff.page.mouse.move(*diff.point("GPU 0 stream 7", 300_000))
    diff.settle()
    diff.run = 1
    x, _ = diff.point("GPU 0 stream 7", 270_000)
    box = diff.canvas()
    read = """([left, run]) => { const c = document.querySelectorAll('.board canvas')[run];
        return [...c.getContext('2d').getImageData(left, 40, 3, 1).data]; }"""
    pixels = diff.page.evaluate(read, [round(x - box["x"]) - 1, 1])

    assert list(mark) in [pixels[0:3], pixels[4:7], pixels[8:11]]


def test_the_full_window_is_shared_by_both(diff: Opened) -> None:
    diff.press("e")
    heights = [diff.page.locator(".board").nth(i).bounding_box() for i in (0, 1)]

    assert diff.page.locator(".timelines").bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 800}
    assert heights[1]["y"] + heights[1]["height"] <= 800
    assert heights[0]["height"] + heights[1]["height"] > 550


def test_runs_without_steps_are_held_at_the_start_of_their_windows(opened: Open) -> None:
    pictures = [run(1_000_000, begin=50_000), run(400_000)]
    page = opened(as_html(COMPARED, *pictures))

    assert [view[0] for view in views(page)] == pytest.approx([50_000 - EDGE, -EDGE])
    assert page.text(".step-of") == "step 1 of 1"


def test_help_names_the_keys_of_two(diff: Opened) -> None:
    diff.press("?")

    assert "lock the two timelines together" in diff.text("dialog")


@pytest.mark.parametrize("html", [WHAT_IF, DIFF], ids=["whatif", "diff"])
@pytest.mark.parametrize(("width", "theme"), WINDOWS)
def test_they_fit_any_window_in_any_theme(opened: Open, html: str, width: int, theme: str) -> None:
    page = opened(html, width=width, height=900, theme=theme)

    assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert (sum(page.variable("page")) < 100) == (theme == "dark")
    assert (sum(page.colour("GPU 0 stream 7", 300_000)) < 120) == (theme == "dark")
