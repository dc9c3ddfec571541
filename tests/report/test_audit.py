"""The table of `unstall audit`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from report.sample_audit import AUDIT, EULER, ITEM, RECIPE, figures, found

from unstall.answers.audit import Audited
from unstall.auditing.result import Audit
from unstall.document.formats import render
from unstall.report.audit import document
from unstall.result import Caller

Golden = Callable[[str, str], None]


def _text(audit: Audit, form: str = "text") -> str:
    return render(Audited(audit).document(), form)


def test_the_whole_table(golden: Golden) -> None:
    golden("audit.txt", _text(AUDIT))
    golden("audit.md", _text(AUDIT, "markdown"))


def test_json_is_the_audit_itself() -> None:
    assert msgspec.json.decode(_text(AUDIT, "json").encode(), type=Audit) == AUDIT


def test_an_entry_that_gains_nothing_says_so() -> None:
    (line,) = (line for line in _text(AUDIT).splitlines() if line.startswith("Quiet"))
    assert line.split() == ["Quiet", "81", "0", "97", "%", "3.00", "ms", "nothing"]


def test_a_failed_entry_is_not_counted_as_clean() -> None:
    assert "3 of 4 entries audited; 2 would gain something, 1 nothing; in 2 the host waits" in _text(AUDIT)


def test_entries_of_several_files_have_their_files_names() -> None:
    other = msgspec.structs.replace(AUDIT.rows[0], entry="eval.py")
    assert "schedulers.py:Heun" in _text(msgspec.structs.replace(AUDIT, rows=(other, *AUDIT.rows[1:])))


def test_one_line_of_several_entries_is_one_row_with_its_largest_gain() -> None:
    lines = _text(AUDIT).splitlines()
    (row,) = (line for line in lines if line.startswith("scheduling_euler_discrete.py:668"))
    assert row.split()[1:] == ["2", "10", "3.0", "%"]


def test_a_line_that_waits_in_two_operators_is_of_one_entry() -> None:
    twice = figures(found(668, ITEM, 30_000), found(668, ITEM, 60_000, times=2.0), mended_ns=2_900_000)
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=twice),)
    lines = _text(msgspec.structs.replace(AUDIT, rows=rows)).splitlines()
    (row,) = (line for line in lines if line.startswith("scheduling_euler_discrete.py:668"))
    assert row.split()[1:] == ["1", "3", "3.0", "%"]


def test_a_bug_comes_first_and_is_called_one() -> None:
    race = msgspec.structs.replace(found(9, "Race: read before written", None, file=RECIPE), wrong=True)
    rows = (msgspec.structs.replace(AUDIT.rows[2], figures=figures(race)), *AUDIT.rows[:2])
    text = _text(msgspec.structs.replace(AUDIT, rows=rows))
    assert "1 may compute a wrong result" in text
    lines = text[text.index("What else is found") :].splitlines()
    assert lines[1].split()[-1] == "bug"


def test_what_the_figures_leave_out_is_said_at_the_entry() -> None:
    short = msgspec.structs.replace(EULER, caveats=("the run has 2 steps",))
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=short),)
    assert "the run has 2 steps" in _text(msgspec.structs.replace(AUDIT, rows=rows))


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_scrubbed_paths_name_no_home_folder(form: str) -> None:
    assert "/home/ada" in _text(AUDIT, form) or form == "text"
    assert "/home/ada" not in render(Audited(AUDIT).document(scrub_paths=True), form)


def test_github_shows_failures_and_what_gains_something() -> None:
    commands = _text(AUDIT, "github").splitlines()
    assert [command.partition(" ")[0] for command in commands].count("::error") == 1
    assert sum("line=668" in command for command in commands) == 2
    assert not any("line=700" in command for command in commands)


def test_a_line_of_a_library_is_annotated_where_the_repository_leads_to_it() -> None:
    where = msgspec.structs.replace(
        EULER.findings[1].where, called_from=Caller(file=RECIPE, line=12, function="prepare")
    )
    wait = msgspec.structs.replace(EULER.findings[1], where=where)
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=figures(wait)),)
    (shown,) = document(msgspec.structs.replace(AUDIT, rows=rows), {RECIPE: "recipes/schedulers.py"}).annotations
    assert (shown.file, shown.line) == ("recipes/schedulers.py", 12)


def test_a_saved_audit_may_have_steps_of_no_length() -> None:
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=figures(found(668, ITEM, 9), step_ns=0, mended_ns=0)),)
    assert "scheduling_euler_discrete.py:668" in _text(msgspec.structs.replace(AUDIT, rows=rows))
