"""The terminal report: what a reader sees at 80 columns, and what a hostile name cannot do there."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from report.answers import PLANNED
from report.rendered import as_markdown, as_text, document_of
from report.sample import HOSTILE, NO_DEVICE, TYPICAL, accounts, results
from rich.console import Console
from rich.text import Text

from unstall.cli._streams import prepare
from unstall.document import bar, terminal
from unstall.document.document import Column, Document, Row, Table, words
from unstall.report.explain import often
from unstall.report.wording import parts
from unstall.result import Accounts, Busy, DeviceAccounts, Idle, Result, Where


def _row(text: str, start: str) -> list[str]:
    """The cells of the one line that starts like this."""
    (line,) = (line for line in text.splitlines() if line.startswith(start))
    return re.split(r"\s{2,}", line)


def test_a_wide_terminal_has_each_row_on_one_line_and_what_device_idle_time_is_mostly_for() -> None:
    wide, narrow = as_text(TYPICAL, width=120), as_text(TYPICAL)
    title = "1. launch-bound: the device waits for the host to dispatch (770x a step)"
    assert _row(wide, "1. ") == [title, "12.2 ms", "0"]
    assert _row(wide, "Cost by line")[1:] == ["launches", "device", "device idle", "mostly", "host waits"]
    line = "…/vision/train.py:28 def load · aten::to"
    assert _row(wide, line) == [line, "2", "2.14 ms", "1.43 ms", "input", "2.14 ms"]
    assert _row(narrow, "Cost by line")[1:] == ["launches", "device", "device idle", "host waits"]


def test_a_run_without_a_device() -> None:
    assert as_text(NO_DEVICE).splitlines() == [
        "cpu.json",
        "120 host events · 0 device ops",
        "the whole run of 5.00 ms; no steps were found in it",
        "",
        "No work on a device was recorded.",
        "",
        "Integrity: something is missing or damaged, so figures may be wrong",
        "- The file is cut off at byte 10,485,760: 120 whole events were read.",
    ]


def test_a_gain_has_a_column_once_any_finding_has_one() -> None:
    first, *others = TYPICAL.findings
    result = replace(TYPICAL, findings=(replace(first, gain_ns=9_800_000), *others))
    text = as_text(result, top=2)
    assert _row(text, "Findings")[1:] == ["gain", "exposed", "host waits"]
    assert _row(text, "1. ")[1:] == ["9.80 ms", "12.2 ms", "0"]
    assert _row(text, "2. ")[1:] == ["-", "4.13 ms", "20.6 ms"]
    assert _row(as_text(TYPICAL), "Findings")[1:] == ["exposed", "host waits"]
    assert "gain: time a step saves if only this is fixed" in as_text(result)
    assert "gain: " not in as_text(TYPICAL)


def test_a_plan_that_ends_far_above_the_floor_names_what_no_edit_tells() -> None:
    first, *others = PLANNED.findings
    unknown = replace(PLANNED, findings=(replace(first, gain_ns=None, edit=None), *others))
    said = "not modelled is what is gained by mending finding 1 (at most 12.2 ms)"
    far = replace(unknown, floor_ns=2_000_000)
    assert said in " ".join(as_text(far).split())
    assert said in as_markdown(far)
    assert PLANNED.plan is not None
    near = replace(unknown, floor_ns=PLANNED.plan[-1].step_ns - 3_000_000)  # no more than the rest can be gained
    assert "mending finding 1 (at most 3.00 ms)" in " ".join(as_text(near).split())
    assert "not modelled" not in as_text(unknown)  # the plan comes to the floor
    assert "not modelled" not in as_text(replace(PLANNED, floor_ns=2_000_000))  # all gains are known


def test_several_devices_are_told_apart() -> None:
    second = DeviceAccounts(device=1, wall_ns=100, busy_ns=Busy(compute=25, comm=50), idle_ns=Idle(sync=5, comm=20))
    third = DeviceAccounts(device=2, name="NVIDIA H200", wall_ns=100, busy_ns=Busy(compute=100), idle_ns=Idle())
    result = replace(TYPICAL, by_device=(*TYPICAL.by_device, second, third))
    text = as_text(result, top=1)
    assert _row(text, "0 NVIDIA H200") == ["0 NVIDIA H200", "68.5 %", "31.5 %", "mostly launch"]
    assert _row(text, "1   ") == ["1", "75.0 %", "25.0 %", "mostly comm"]
    assert _row(text, "2 NVIDIA H200") == ["2 NVIDIA H200", "100 %", "0 %"]
    assert "| 1 | 75.0 % | 25.0 % | mostly comm |" in as_markdown(result, top=1)
    assert "Each device" not in as_text(TYPICAL)


def test_a_run_at_40_columns_has_its_figures_below_the_text() -> None:
    lines = as_text(TYPICAL, width=40).splitlines()
    at = lines.index("1. launch-bound: the device waits for")
    assert lines[at + 1 : at + 3] == ["   the host to dispatch (770x a step)", "   exposed 12.2 ms · host waits 0"]
    assert "Findings, per step" in lines
    at = lines.index("…/models/backbone.py:112 def forward")
    assert lines[at + 1 : at + 4] == [
        "   launches 770 · device 36.9 ms",
        "   device idle 12.2 ms · mostly launch",
        "   host waits 0",
    ]


def test_counts_under_per_step_are_per_step() -> None:
    lines = as_text(TYPICAL).splitlines()
    assert TYPICAL.lines[0].launches == 2310
    assert "backbone.py:112 def              770 " in "".join(lines)
    assert any("nonzero() makes the host wait for the device (5x a step)" in line for line in lines)
    assert "saw: counted over all 3 steps" in lines


@pytest.mark.parametrize(
    ("count", "seen", "steps", "text"),
    [(48, 3, 3, "16x a step"), (48, None, 3, "16x a step"), (48, 1, 3, "48x in 1 of 3 steps"),
     (7, 3, 3, "7x in 3 steps"), (3000, 3, 3, "1,000x a step"), (1, 1, 5, "once in 5 steps"),
     (2, 2, 5, "2x in 2 of 5 steps"), (1, 1, 1, ""), (1234, 1, 1, "1,234x"), (0, 0, 5, "")],
)  # fmt: skip
def test_how_often_is_said_per_step_or_in_how_many(count: int, seen: int | None, steps: int, text: str) -> None:
    result = replace(TYPICAL, steps=replace(TYPICAL.steps, count=steps))
    assert often(result, replace(TYPICAL.findings[0], count=count, steps_seen=seen)) == text


def test_a_run_without_steps_is_in_all() -> None:
    steps = replace(TYPICAL.steps, found_by="whole", name=None, count=1)
    text = as_text(replace(TYPICAL, steps=steps))
    assert "Findings, in all" in text
    assert "Cost by line, in all" in text
    assert "per step" not in text


def test_an_empty_recording_is_said_to_be_empty() -> None:
    empty = replace(NO_DEVICE, steps=replace(NO_DEVICE.steps, wall_ns=0, mean_ns=0))
    assert "\nnothing was recorded\n" in as_text(empty)


def test_confidence_is_said_where_it_is_not_high() -> None:
    text = as_text(TYPICAL, width=120)
    assert "copies from pageable host memory block the host (1x a step, medium confidence)" in text
    assert "high confidence" not in text


def test_a_place_that_is_its_operator_is_named_once() -> None:
    where = Where(function="aten::linear", op="aten::linear")
    finding, line = replace(TYPICAL.findings[0], where=where), replace(TYPICAL.lines[0], where=where)
    result = replace(TYPICAL, findings=(finding, replace(finding, harmless=True)), lines=(line,))
    assert as_text(result).count("aten::linear") == 3
    assert as_markdown(result).count("aten::linear") == 3


@pytest.mark.parametrize(("gain_ns", "shown"), [(-27, "0"), (0, "0"), (-9_800_000, "-9.80 ms")])
def test_a_gain_that_nobody_could_measure_is_none(gain_ns: int, shown: str) -> None:
    first, *others = TYPICAL.findings
    result = replace(TYPICAL, findings=(replace(first, gain_ns=gain_ns), *others))
    assert re.search(rf"1\. {re.escape(first.title)} .* {shown} ", as_text(result, width=120))
    assert f"gain **{shown}**" in as_markdown(result)


def test_advice_that_was_given_is_not_given_again() -> None:
    first, second, _, *rest = TYPICAL.findings
    again = replace(first, where=second.where)
    result = replace(TYPICAL, findings=(first, second, again, *rest))
    for text in (as_text(result, width=120), as_markdown(result)):
        assert text.count("capture the step in a CUDA graph") == 1
        assert text.count("as in 1") == 1


def test_what_is_missing_stands_right_below_the_verdict() -> None:
    damaged = replace(TYPICAL, integrity=replace(TYPICAL.integrity, ok=False))
    for text in (as_text(damaged), as_markdown(damaged)):
        assert text.index("something is missing or damaged") < text.index("idle: sync")
    assert as_text(TYPICAL).index("idle: sync") < as_text(TYPICAL).index("\nIntegrity\n")


def test_top_limits_findings_and_lines_and_says_how_to_see_all() -> None:
    text = as_text(TYPICAL, top=1)
    assert "1. launch-bound" in text
    assert "2. .item()" not in text
    assert "… and 2 more: --top 3" in text
    assert "… and 3 more: --top 4" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_no_line_is_wider_than_asked_or_than_120(width: int) -> None:
    assert max(map(len, as_text(TYPICAL, width=width).splitlines())) <= min(width, 120)


@pytest.mark.parametrize("mark", ["  ", "▲ "])
@pytest.mark.parametrize("width", [30, 40, 80])
def test_rows_that_wrap_keep_their_indent(width: int, mark: str) -> None:
    name = "softmax(x, dim=-1).sum(0) + exp(x).sqrt() * 4 + layer_norm(x, shape) @ weight"
    table = Table(words("title"), (Column("time"),), (Row(words(mark, name), ("1.23 ms",)),), compact=True)
    shown = terminal.render(Document(title="", about=(), blocks=(table,), data={}), width=width).splitlines()[1:]
    text = [line.replace("time", "").replace("1.23 ms", "") for line in shown]
    assert len(text) > 1
    assert text[0].startswith(mark)
    assert all(line.startswith("  ") for line in text[1:])
    assert "".join("".join(text).split()) == "".join((mark + name).split())


@given(results(), st.integers(40, 160))
def test_any_result_is_printable_lines_and_nothing_else(result: Result, width: int) -> None:
    text = as_text(result, width=width)
    assert all(line.isprintable() for line in text.splitlines())
    assert text.endswith("\n")


@pytest.mark.parametrize("name", [text for text in HOSTILE if "[" in text])
def test_brackets_in_a_name_are_shown_and_style_nothing(name: str) -> None:
    where = Where(file="a.py", line=1, function="f", op=name)
    finding = replace(TYPICAL.findings[0], title=name, where=where)
    result = replace(TYPICAL, findings=(finding,), lines=())
    shown = re.sub(r"\s", "", as_text(result, width=120))
    assert re.sub(r"\s", "", "".join(c for c in name if c.isprintable())) in shown


def test_colours_are_the_themes_own_and_never_black_or_white() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=80)
    with console.capture() as capture:
        console.print(terminal.layout(document_of(TYPICAL), 10))
    codes = {code for run in re.findall(r"\x1b\[([\d;]*)m", capture.get()) for code in run.split(";")}
    assert codes <= {"0", "1", "2", "31", "32", "33", "34", "35", "36"}


@given(accounts(), st.integers(20, 120))
def test_the_bar_is_exactly_as_wide_as_the_terminal_and_leaves_no_account_out(whole: Accounts, width: int) -> None:
    shown = parts(whole)
    cells = bar.cells_of(shown, width) if shown else []
    assert sum(cells) == (width if shown else 0)
    assert all(count >= 1 for count in cells)


def test_the_bar_is_in_proportion() -> None:
    whole = Accounts(wall_ns=100, busy_ns=Busy(compute=50), idle_ns=Idle(sync=25, launch=25))
    assert bar.cells_of(parts(whole), 83) == [41, 21, 21]


def test_a_notebook_shows_the_report_as_escaped_html() -> None:
    where = Where(function="</pre><script>alert(1)</script>")
    finding = replace(TYPICAL.findings[0], where=where)
    html = terminal.notebook(document_of(replace(TYPICAL, findings=(finding,))))
    assert html.startswith("<pre")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp437"])
def test_every_account_has_a_look_of_its_own_in_any_encoding(encoding: str) -> None:
    prepare()
    glyphs = [glyph for glyph, _ in bar._STYLES.values()]
    shown = [glyph.encode(encoding, "unstall.stand-in") for glyph in glyphs]
    assert len(set(shown)) == len(glyphs)
    assert b"?" not in shown
    assert all(len(Text(glyph)) == 1 for glyph in glyphs)


def test_no_line_breaks_between_a_figure_and_its_unit() -> None:
    text = "a step takes 11.0 ms instead of 11.6 ms: 4.5 % less, or 1.20 MiB, 7 µs, 12 s and 3 of 4 steps"
    table = Table(words(text), (Column("takes"),), (Row(words(text), ("1 ms",), (words("  ", text),)),))
    document = Document(title="t", about=(), summary=text, blocks=(table,), data={})
    for width in range(30, 100):
        lines = terminal.render(document, width=width).splitlines()
        assert not [line for line in lines if re.match(r"\s*(ms|%|MiB|µs|s)\b", line.replace("%", "% "))], width
        assert " ".join(" ".join(lines).split()).startswith(text)
        assert all(len(line) <= width for line in lines)
