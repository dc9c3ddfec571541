"""What the plan of the run before promised, what the run after got, and which parts of the plan are still there."""

from __future__ import annotations

from pathlib import Path

import pytest
from changes.runs import launching, recorded, steps
from traces import TraceBuilder

import unstall
from unstall.answers.difference import Difference
from unstall.cli import main
from unstall.errors import TraceError
from unstall.timeline.columns import StepsLeftOut


def _step(*, waits: bool, pageable: bool) -> TraceBuilder:
    """Steps of one upload and two kernels, the first of which may be read by the host."""

    def body(trace: TraceBuilder, step: int) -> None:
        with trace.frame("train.py", 11, "train"), trace.op("aten::to"):
            trace.copy("HtoD", 90, memory="Pageable" if pageable else "Pinned", size=4 << 20)
        with trace.frame("train.py", 12, "train"):
            launching(200)(trace, step)
        if waits:
            with trace.frame("train.py", 13, "train"), trace.op("aten::item"):
                trace.item()
        trace.work(150)
        with trace.frame("train.py", 14, "train"):
            launching(200, kernel="relu")(trace, step)

    return steps(body, count=8)


def _between(before: TraceBuilder, after: TraceBuilder) -> Difference:
    return unstall.diff(before.timeline(), after.timeline())


def test_the_promise_is_the_plans_step_and_the_result_that_of_the_run_after() -> None:
    before = unstall.explain(_step(waits=True, pageable=True).timeline())
    difference = unstall.diff(before, _step(waits=False, pageable=False).timeline())
    assert before.result.plan
    assert difference.promised_step_ns == before.result.plan[-1].step_ns
    assert difference.got_step_ns is not None
    assert difference.before_step_ns is not None
    assert difference.got_step_ns < difference.before_step_ns
    *_, last = difference.conclusion().splitlines()
    promised, got = (f"{ns / 1e6:.3f} ms" for ns in (difference.promised_step_ns, difference.got_step_ns))
    assert last == f"promised {promised}, got {got}"


def test_a_plan_that_was_carried_out_has_nothing_left() -> None:
    difference = _between(_step(waits=True, pageable=True), _step(waits=False, pageable=False))
    assert difference.result.promise
    assert [edit.still_at for edit in difference.result.promise.edits if edit.edit.startswith("remove-syncs")] == [None]


def test_what_was_not_done_is_named_by_edit_and_place() -> None:
    difference = _between(_step(waits=True, pageable=True), _step(waits=True, pageable=True))
    lines = difference.conclusion().splitlines()
    assert lines[0].startswith("still there, of the plan: ")
    assert "remove-syncs at train.py:13" in lines[0]


def test_without_a_plan_the_line_is_of_before_and_now() -> None:
    difference = _between(steps(launching(3_980)), steps(launching(700)))
    assert difference.promised_step_ns is None
    (line,) = difference.conclusion().splitlines()
    assert line.startswith("before 3.9")
    assert ", now 0.7" in line


def test_runs_that_cannot_be_compared_promise_nothing() -> None:
    difference = _between(steps(launching(100)), steps(lambda trace, step: trace.work(5)))
    assert difference.conclusion() == "these runs cannot be compared"
    assert difference.got_step_ns is None


def test_the_report_has_the_waterfall_and_ends_with_the_line() -> None:
    difference = _between(_step(waits=True, pageable=True), _step(waits=True, pageable=True))
    text = str(difference)
    assert "Promise and result" in text
    assert text.splitlines()[-1] == difference.conclusion().splitlines()[-1]
    assert max(map(len, text.splitlines())) <= 80
    now = next(line for line in text.splitlines() if line.startswith("now "))
    assert "▒" in now


def test_a_saved_result_gives_the_promise_and_no_more(tmp_path: Path) -> None:
    before = unstall.explain(_step(waits=True, pageable=True).timeline())
    before.save(tmp_path / "before.json")
    after = _step(waits=False, pageable=False).timeline()
    saved = unstall.diff(tmp_path / "before.json", after)
    assert saved.conclusion().splitlines()[-1] == unstall.diff(before, after).conclusion().splitlines()[-1]
    assert saved.result.kernels == ()
    assert "A is a saved result" in saved.result.caveats[0].text
    assert saved.result.summary.faster == "b"


def test_a_file_that_is_neither_is_refused_as_a_trace_is(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(TraceError, match=r"no\.json"):
        unstall.diff(tmp_path / "no.json", tmp_path / "no.json")


def test_diff_has_the_public_names_forms(tmp_path: Path) -> None:
    paths = [_step(waits=waits, pageable=True).write(tmp_path / f"{waits}.json") for waits in (True, False)]
    difference = unstall.diff(*paths)
    assert '"schema": "unstall.diff/1"' in difference.json
    difference.save(tmp_path / "diff.md")
    assert "Promise and result" in (tmp_path / "diff.md").read_text()


def test_the_command_ends_with_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [_step(waits=waits, pageable=True).write(tmp_path / f"{waits}.json") for waits in (True, False)]
    assert main(["diff", *map(str, paths)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == unstall.diff(*paths).conclusion().splitlines()[-1]


def test_figures_are_of_the_steps_that_are_compared() -> None:
    """Two steps of the run before are one of the run after."""

    def twice(trace: TraceBuilder, step: int) -> None:
        launching(500)(trace, step)
        launching(500)(trace, step)

    one = recorded(launching(550), marks="forward", count=8)
    difference = _between(one, recorded(twice, count=8))
    assert difference.result.compared == (2, 1)
    assert difference.before_step_ns == pytest.approx(1_100_000, rel=0.02)
    assert difference.got_step_ns == pytest.approx(1_000_000, rel=0.02)
    assert difference.conclusion() == "before 1.10 ms, now 1.00 ms (2 steps before, 1 now)"
    assert "all figures of A are for 2 of its steps" in str(difference).replace("\n  ", " ")


def test_the_page_shows_the_waterfall_and_no_markup_of_a_trace(tmp_path: Path) -> None:
    def body(trace: TraceBuilder, step: int) -> None:
        with trace.frame("a<img src=x>.py", 13, "train"), trace.op("aten::item"):
            launching(200)(trace, step)
            trace.item()
        trace.work(150)

    difference = _between(steps(body, count=8), steps(body, count=8))
    difference.save(tmp_path / "diff.html")
    page = (tmp_path / "diff.html").read_text()
    _, _, section = page.partition('<div id="page"><section')
    section, _, _ = section.partition("</section>")
    assert difference.conclusion().splitlines()[-1] in section
    assert "still there" in section
    assert "<img" not in page
    assert "a&lt;img src=x&gt;.py" in section
    assert "style=" not in section  # the page's policy forbids it


def test_of_runs_without_steps_the_line_and_the_waterfall_are_of_the_run() -> None:
    def once(*, waits: bool) -> TraceBuilder:
        trace = TraceBuilder()
        for line in (11, 12, 13, 14):
            with trace.frame("once.py", line, "<module>"):
                launching(200, kernel=f"kernel{line}")(trace, 0)
                if waits:
                    with trace.op("aten::item"):
                        trace.item()
                trace.work(150)
        return trace

    difference = _between(once(waits=True), once(waits=False))
    assert difference.result.of_whole_runs
    assert difference.conclusion().endswith(" in all")
    assert "a step takes" not in str(difference)
    assert "the run takes" in str(difference)


def test_a_step_time_of_few_steps_is_not_told_as_reached_without_the_others() -> None:
    before = unstall.explain(_step(waits=True, pageable=True).timeline())
    timeline = _step(waits=False, pageable=False).timeline()
    left_out = StepsLeftOut(proving=45, apart=46, of=97, mean_ns=8_000_000)
    after = timeline.with_meta(left_out=left_out)
    *_, last = unstall.diff(before, after).conclusion().splitlines()
    assert last.startswith("promised 0.")
    assert ", but only in 8 of 97 steps: the 91 left out, " in last
    assert last.endswith("take 8.00 ms in the mean")


def test_a_caveat_says_of_which_run_most_steps_are_left_out() -> None:
    timeline = _step(waits=True, pageable=True).timeline()
    left_out = StepsLeftOut(proving=45, apart=46, of=97, mean_ns=8_000_000)
    before = timeline.with_meta(left_out=left_out)
    said = [each.text for each in unstall.diff(before, timeline).result.caveats if each.code == "steps"]
    assert [text[:45] for text in said] == ["The figures of A are of only 8 of its 97 step"]
