"""The table of `unstall audit`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from unstall.answers.audit import Audited
from unstall.auditing.result import Audit, Failure, Figures, Found, Row
from unstall.document.formats import render
from unstall.report.audit import document
from unstall.result import Caller, Where

_LIBRARY = "diffusers/schedulers/scheduling_euler_discrete.py"
_RECIPE = "/home/ada/work/schedulers.py"
_ITEM, _NONZERO = ".item() waits for its value", "nonzero() waits for a count"
_LAUNCH = "The device waits for the host to dispatch"
Golden = Callable[[str, str], None]


def _found(line: int, title: str, gain_ns: int | None, *, file: str = _LIBRARY, times: float = 1.0) -> Found:
    is_wait = title in (_ITEM, _NONZERO)
    return Found(
        rule="sync-item" if is_wait else "launch-bound",
        title=title,
        where=Where(file=file, line=line, line_is="exact", function="step", op="aten::item" if is_wait else None),
        per_step=times,
        is_wait=is_wait,
        wait_ns=5_000 if is_wait else 0,
        gain_ns=gain_ns,
        fix="keep it on the device",
        safe_if="nothing on the host needs it",
    )


def _figures(*findings: Found, step_ns: int = 3_000_000, mended_ns: int = 3_000_000) -> Figures:
    return Figures(
        device="NVIDIA H200",
        torch="2.13.0",
        known_error="the host's times within a factor of 2",
        steps=6,
        launches=81.0,
        copies=2.5,
        step_ns=step_ns,
        mended_ns=mended_ns,
        idle=0.974,
        bound_by="launch",
        findings=findings,
    )


EULER = _figures(
    _found(42, _LAUNCH, 2_600_000, file=_RECIPE, times=81.0),
    _found(660, _NONZERO, 20_000),
    _found(668, _ITEM, 15_000, times=10.0),
    _found(700, _ITEM, 0, times=0.5),
    mended_ns=300_000,
)
HEUN = _figures(_found(668, _ITEM, 90_000), mended_ns=2_910_000)
AUDIT = Audit(
    version="0.1.0",
    gpu="h200",
    rows=(
        Row(entry=f"{_RECIPE}:Euler", took_s=5.1, figures=EULER),
        Row(entry=f"{_RECIPE}:Heun", took_s=5.1, figures=HEUN),
        Row(entry=f"{_RECIPE}:Quiet", took_s=5.1, figures=_figures()),
        Row(
            entry=f"{_RECIPE}:LMS",
            took_s=1.0,
            failure=Failure(reason="ImportError: scipy is missing", log="/tmp/unstall-audit-1/LMS/log.txt"),
        ),
    ),
)


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
    twice = _figures(_found(668, _ITEM, 30_000), _found(668, _ITEM, 60_000, times=2.0), mended_ns=2_900_000)
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=twice),)
    lines = _text(msgspec.structs.replace(AUDIT, rows=rows)).splitlines()
    (row,) = (line for line in lines if line.startswith("scheduling_euler_discrete.py:668"))
    assert row.split()[1:] == ["1", "3", "3.0", "%"]


def test_a_bug_comes_first_and_is_called_one() -> None:
    race = msgspec.structs.replace(_found(9, "Race: read before written", None, file=_RECIPE), wrong=True)
    rows = (msgspec.structs.replace(AUDIT.rows[2], figures=_figures(race)), *AUDIT.rows[:2])
    text = _text(msgspec.structs.replace(AUDIT, rows=rows))
    assert "1 may compute a wrong result" in text
    found = text[text.index("What else is found") :].splitlines()
    assert found[1].split()[-1] == "bug"


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
        EULER.findings[1].where, called_from=Caller(file=_RECIPE, line=12, function="prepare")
    )
    found = msgspec.structs.replace(EULER.findings[1], where=where)
    rows = (msgspec.structs.replace(AUDIT.rows[0], figures=_figures(found)),)
    (shown,) = document(msgspec.structs.replace(AUDIT, rows=rows), {_RECIPE: "recipes/schedulers.py"}).annotations
    assert (shown.file, shown.line) == ("recipes/schedulers.py", 12)
