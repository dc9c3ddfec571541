"""The timeline, used as a reader would: with a mouse, with keys, by search."""

from __future__ import annotations

import msgspec
import pytest
from browser.conftest import Open
from browser.opened import Opened
from report.rendered import as_html
from report.sample import TYPICAL
from report.timelines import drawn, large, training_step

from unstall.result import IDLE_CAUSES

pytestmark = pytest.mark.browser

SYNC = IDLE_CAUSES.index("sync")
LAUNCH = IDLE_CAUSES.index("launch")
IDLE = ((0, 100_000, LAUNCH, 0), (700_000, 1_000_000, SYNC, 0))
PLACES = ["train.py:90 main", *["train.py:41 step"] * 6]
STEP = as_html(
    msgspec.structs.replace(
        TYPICAL,
        findings=(
            msgspec.structs.replace(TYPICAL.findings[0], spans=((200_000, 300_000), (400_000, 800_000))),
            *TYPICAL.findings[1:],
        ),
    ),
    drawn(training_step(), idle=IDLE, host_places=PLACES),
)


@pytest.fixture
def step(opened: Open) -> Opened:
    """One training step of 1 ms, in sight from 0 to 1,000,000 ns."""
    return opened(STEP)


def test_at_first_the_steps_fill_the_view(step: Opened) -> None:
    assert step.view == (0, 1_000_000)


def test_tracks_are_named_beside_the_canvas(step: Opened) -> None:
    assert step.page.locator(".label").all_inner_texts() == [
        "GPU 0 idle",
        "GPU 0 stream 7",
        "python 400",
        "Python, python 400",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_idle_time_is_drawn_in_its_causes_colour_of_the_theme(opened: Open, theme: str) -> None:
    page = opened(STEP, theme=theme)

    assert page.colour("GPU 0 idle", 850_000) in shades(page.variable("idle-sync"), page)
    assert page.colour("GPU 0 idle", 90_000) in shades(page.variable("idle-launch"), page)
    assert page.colour("GPU 0 stream 7", 450_000) in shades(page.variable("busy-compute"), page)


def shades(colour: tuple[int, int, int], page: Opened) -> list[tuple[int, int, int]]:
    """The three shades in which events of one kind are drawn."""
    canvas = page.variable("canvas")
    toward = (255, 255, 255) if sum(canvas) < 200 else (0, 0, 0)

    def mix(other: tuple[int, int, int], part: float) -> tuple[int, int, int]:
        red, green, blue = (int(a + (b - a) * part + 0.5) for a, b in zip(colour, other, strict=True))
        return red, green, blue

    return [colour, mix(toward, 0.06), mix(canvas, 0.12)]


def test_the_wheel_zooms_about_the_pointer_once_the_timeline_was_clicked(step: Opened) -> None:
    x, y = step.point("GPU 0 idle", 250_000)
    step.page.mouse.click(x, y)
    step.page.mouse.wheel(0, -500)
    start, end = step.view

    box = step.canvas()
    assert end - start < 500_000
    assert start + (x - box["x"]) / box["width"] * (end - start) == pytest.approx(250_000, rel=1e-3)


def test_the_wheel_scrolls_the_page_until_then_and_zooms_with_ctrl(step: Opened) -> None:
    x, y = step.point("GPU 0 idle", 250_000)
    step.page.mouse.move(x, y)
    step.page.mouse.wheel(0, 100)
    assert step.view == (0, 1_000_000)

    step.page.keyboard.down("Control")
    step.page.mouse.wheel(0, -100)
    step.page.keyboard.up("Control")
    start, end = step.view
    assert end - start < 1_000_000


def test_dragging_moves_the_time_under_the_pointer_with_it(step: Opened) -> None:
    step.page.locator(".board canvas").focus()
    step.press("w", "w", "w")
    start, end = step.view
    x, y = step.point("GPU 0 idle", (start + end) / 2)
    step.page.mouse.move(x, y)
    step.page.mouse.down()
    step.page.mouse.move(x - 100, y, steps=5)
    step.page.mouse.up()
    moved = step.view

    pixel = (end - start) / step.canvas()["width"]
    assert moved[0] - start == pytest.approx(100 * pixel, rel=0.01)
    assert moved[1] - moved[0] == pytest.approx(end - start)
    assert step.data("selected") == ""


def test_dragging_with_shift_zooms_to_the_stretch(step: Opened) -> None:
    x, y = step.point("GPU 0 idle", 400_000)
    to, _ = step.point("GPU 0 idle", 600_000)
    step.page.keyboard.down("Shift")
    step.page.mouse.move(x, y)
    step.page.mouse.down()
    step.page.mouse.move(to, y, steps=4)
    step.page.mouse.up()
    step.page.keyboard.up("Shift")

    start, end = step.view
    assert start == pytest.approx(400_000, rel=0.01)
    assert end == pytest.approx(600_000, rel=0.01)
    assert step.text("#kernels-title") == "Kernels, of the 200 µs that are selected"


def test_two_fingers_zoom(step: Opened) -> None:
    x, y = step.point("GPU 0 stream 7", 500_000)
    session = step.page.context.new_cdp_session(step.page)

    def touch(kind: str, *places: float) -> None:
        points = [{"x": place, "y": y, "id": i} for i, place in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", x - 50, x + 50)
    for apart in (80, 120, 160, 200):
        touch("touchMove", x - apart, x + apart)
    touch("touchEnd")
    start, end = step.view

    assert end - start == pytest.approx(250_000, rel=0.05)
    assert (start + end) / 2 == pytest.approx(500_000, rel=0.05)


def test_pointing_shows_name_and_exact_duration(step: Opened) -> None:
    step.page.mouse.move(*step.point("GPU 0 stream 7", 300_000))
    step.settle()

    assert step.text(".tooltip").split("\n") == [
        "gemm_f32",
        "kernel · 400 µs (400,000 ns)",
        "train.py:41 step",
    ]


def test_a_click_shows_all_that_is_known_of_an_event(step: Opened) -> None:
    step.click("GPU 0 stream 7", 600_000)
    details = step.text(".details")

    assert "Memcpy HtoD (Pageable -> Device)" in details
    assert "500,000 ns" in details
    assert "200 µs (200,000 ns)" in details
    assert "host → device, pageable, 1,048,576 bytes" in details
    assert step.page.locator(".stack li").all_inner_texts() == ["train.py:41 step", "train.py:90 main"]


def test_one_can_jump_from_a_device_op_to_its_launch_and_back(step: Opened) -> None:
    step.click("GPU 0 stream 7", 300_000)
    kernel = step.data("selected")
    step.page.locator(".details button", has_text="cudaLaunchKernel").click()
    assert step.text(".details h3") == "cudaLaunchKernel"

    step.page.locator(".board canvas").focus()
    step.press("l")
    assert step.data("selected") == kernel
    assert step.text(".details h3") == "gemm_f32"


def test_a_click_beside_all_events_lets_go(step: Opened) -> None:
    step.click("GPU 0 stream 7", 300_000)
    step.click("GPU 0 stream 7", 900_000)

    assert step.data("selected") == ""
    assert step.page.locator(".details").is_hidden()


def test_keys_move_zoom_and_fit(step: Opened) -> None:
    step.page.locator(".board canvas").focus()
    step.press("w")
    start, end = step.view
    assert end - start == pytest.approx(1_000_000 / 1.5)
    step.press("d")
    assert step.view[0] > start
    step.press("a", "s", "f")
    assert step.view == (0, 1_000_000)
    step.press("ArrowRight", "+")
    assert step.view != (0, 1_000_000)
    step.press("f")
    assert step.view == (0, 1_000_000)


def test_letters_zoom_and_move_wherever_the_focus_is_and_bring_the_timeline_into_sight(step: Opened) -> None:
    step.page.set_viewport_size({"width": 1280, "height": 500})
    step.press("w")
    start, end = step.view
    assert end - start == pytest.approx(1_000_000 / 1.5)

    step.press("s", "d")
    assert step.view[0] > 0
    box = step.page.locator(".timeline").bounding_box()
    assert box["y"] < 500


def test_arrows_leave_the_page_alone_while_the_timeline_is_not_meant(step: Opened) -> None:
    step.press("ArrowRight", "ArrowDown")

    assert step.view == (0, 1_000_000)


def test_brackets_go_to_the_neighbours_in_a_row(step: Opened) -> None:
    step.click("GPU 0 stream 7", 300_000)
    step.page.locator(".board canvas").focus()
    step.press("]")
    assert step.text(".details h3") == "Memcpy HtoD (Pageable -> Device)"
    step.press("[")
    assert step.text(".details h3") == "gemm_f32"


def test_search_counts_matches_and_goes_through_them_by_time(step: Opened) -> None:
    step.press("/")
    step.page.keyboard.type("CUDA")
    step.page.locator(".matches", has_text="3 matches").wait_for()
    step.press("Enter")
    step.page.keyboard.press("Escape")
    seen = [step.text(".details h3")]
    for _ in range(3):
        step.press("n")
        seen.append(step.text(".details h3"))
    step.press("N")

    names = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize"]
    first = names.index(seen[0])
    assert seen == [names[(first + i) % 3] for i in range(4)]
    assert step.text(".details h3") == names[(first + 2) % 3]


def test_enter_goes_to_a_match_even_before_the_search_was_made(step: Opened) -> None:
    step.press("/")
    step.page.keyboard.type("cuda")
    step.page.keyboard.press("Enter")
    step.page.wait_for_timeout(200)

    assert step.text(".matches").endswith(" of 3")
    assert step.text(".details h3").startswith("cuda")


def test_a_search_without_a_match_lets_go_of_the_former_one(step: Opened) -> None:
    step.press("/")
    step.page.keyboard.type("cuda")
    step.page.keyboard.press("Enter")
    assert step.data("selected") != ""
    step.page.keyboard.type("zzz")
    step.page.locator(".matches", has_text="0 matches").wait_for()

    assert step.data("selected") == ""
    assert step.page.locator(".details").is_hidden()


def test_a_search_takes_the_place_of_a_findings_instances_and_they_that_of_a_search(step: Opened) -> None:
    show = step.page.locator(".finding button", has_text="Show on timeline").first
    show.click()
    assert step.page.locator(".spans").is_visible()
    step.press("/")
    step.page.keyboard.type("cuda")
    step.page.locator(".matches", has_text="3 matches").wait_for()
    assert step.page.locator(".spans").is_hidden()

    show.click()
    assert step.page.locator(".spans").is_visible()
    assert step.text(".matches") == ""
    assert step.page.get_by_label("Search the timeline's names and lines").input_value() == ""


def test_search_finds_source_lines_and_fades_the_rest(step: Opened) -> None:
    before = step.colour("GPU 0 idle", 850_000)
    step.press("/")
    step.page.keyboard.type("train.py:41")
    step.page.locator(".matches", has_text="8 matches").wait_for()

    assert step.colour("GPU 0 idle", 850_000) != before
    assert step.colour("GPU 0 stream 7", 450_000) in shades(step.variable("busy-compute"), step)


def test_a_finding_shows_its_instances_the_longest_first(step: Opened) -> None:
    step.page.locator(".finding button", has_text="Show on timeline").first.click()
    start, end = step.view
    assert start < 400_000 < 800_000 < end
    assert (800_000 - 400_000) / (end - start) > 0.3
    assert step.text(".span-count") == "2 of 2"

    step.page.get_by_label("Next instance").click()
    start, end = step.view
    assert step.text(".span-count") == "1 of 2"
    assert 0 < start < 200_000 < 300_000 < end < 500_000

    step.page.get_by_label("Hide the instances").click()
    assert step.page.locator(".spans").is_hidden()


def test_a_track_closes_to_its_outermost_lane(step: Opened) -> None:
    assert step.data("lanes") == "7"
    label = step.page.get_by_role("button", name="python 400", exact=True)
    label.click()

    assert step.data("lanes") == "5"
    assert label.get_attribute("aria-expanded") == "false"


def test_the_full_window_belongs_to_the_timeline_until_escape(step: Opened) -> None:
    step.press("e")
    assert step.page.locator(".timelines").bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 800}
    assert step.canvas()["height"] > 650

    step.press("Escape")
    assert step.page.locator(".timelines").bounding_box()["width"] < 1280


def test_a_million_events_cost_no_more_to_draw_than_there_are_pixels(opened: Open) -> None:
    page = opened(as_html(TYPICAL, drawn(large(1_000_000))))
    page.page.locator(".board canvas").focus()
    width = page.canvas()["width"]
    most = 3 * width * int(page.data("lanes"))

    for _ in range(24):
        assert 0 < int(page.data("rectangles")) <= most
        page.press("w")
    start, end = page.view
    assert end - start < 200_000
    page.press("/")
    page.page.keyboard.type("op_1")
    page.page.locator(".matches", has_text="matches").wait_for()
    page.press("f")
    assert 0 < int(page.data("rectangles")) <= 2 * most
