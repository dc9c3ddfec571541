"""`unstall report`: a saved result in any format, with or without its paths."""

from __future__ import annotations

import json as standard
from pathlib import Path

import pytest
from cli.command import Cli, Outcome
from report.rendered import as_github, as_json, as_markdown, as_text
from report.sample import TYPICAL
from report.sample_audit import AUDIT

from unstall.answers.audit import Audited
from unstall.document.formats import render


def test_it_prints_the_terminal_report(unstall: Cli, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert unstall("report", saved) == Outcome(0, as_text(TYPICAL), "")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("github", as_github(TYPICAL)),
        ("json", as_json(TYPICAL)),
        ("markdown", as_markdown(TYPICAL)),
        ("text", as_text(TYPICAL)),
    ],
)
def test_format_says_what_is_printed(unstall: Cli, saved: Path, name: str, text: str) -> None:
    assert unstall("report", saved, "--format", name).out == text


def test_json_is_short_for_its_format(unstall: Cli, saved: Path) -> None:
    assert standard.loads(unstall("report", saved, "--json").out)["schema"] == "unstall.explain/1"


def test_endings_choose_the_formats_of_files(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / name for name in ("a.md", "b.txt", "c.json", "d.HTML")]
    outcome = unstall("report", saved, "-q", *(arg for path in outputs for arg in ("-o", path)))
    assert (outcome.code, outcome.out) == (0, "")
    assert outputs[0].read_text() == as_markdown(TYPICAL)
    assert outputs[1].read_text() == as_text(TYPICAL)
    assert outputs[2].read_text() == as_json(TYPICAL)
    assert outputs[3].read_text().startswith("<!doctype html>")


def test_a_file_without_an_ending_takes_the_format_that_is_said(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary"
    assert unstall("report", saved, "-o", summary, "--format", "markdown").code == 0
    assert summary.read_text() == as_markdown(TYPICAL)


def test_a_file_without_any_format_is_refused_before_any_work(unstall: Cli, tmp_path: Path) -> None:
    outcome = unstall("report", tmp_path / "gone.json", "-o", tmp_path / "report.pdf")
    assert outcome.code == 2
    assert "report.pdf: its ending names no format. Use .htm, .html, .json, .md, .txt, or say --format" in outcome.err


def test_an_output_in_no_folder_is_refused(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    outcome = unstall("report", saved, "-o", tmp_path / "no" / "report.md")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err


def test_if_one_output_cannot_be_meant_none_is_written(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    first, last = tmp_path / "a.md", tmp_path / "c.md"
    outcome = unstall("report", saved, "-o", first, "-o", tmp_path / "no" / "b.md", "-o", last)
    assert (outcome.code, outcome.out) == (2, "")
    assert f"b.md: cannot be written: there is no folder {tmp_path / 'no'}. Choose another place" in outcome.err
    assert not first.exists()
    assert not last.exists()


FULL = Path("/dev/full")  # is there and may be written, but takes nothing


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_if_one_output_cannot_be_written_the_others_are(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    first, last = tmp_path / "a.md", tmp_path / "c.md"
    outcome = unstall("report", saved, "--format", "text", "-o", first, "-o", FULL, "-o", last)
    assert outcome.code == 2
    assert outcome.err == (
        "unstall: /dev/full: cannot be written: No space left on device. Choose another place for the output\n"
    )
    assert first.read_text() == as_markdown(TYPICAL)
    assert last.read_text() == as_markdown(TYPICAL)
    assert outcome.out == as_text(TYPICAL)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
def test_budgets_are_checked_even_if_the_report_cannot_be_written(unstall: Cli, saved: Path) -> None:
    outcome = unstall("report", saved, "-q", "--format", "text", "-o", FULL, "--max-idle", "30%")
    assert outcome.code == 2
    assert "unstall: over budget: " in outcome.err
    assert "/dev/full: cannot be written" in outcome.err


def test_scrubbed_reports_name_no_home_in_any_format(unstall: Cli, saved: Path, tmp_path: Path) -> None:
    assert "/home/ada" not in unstall("report", saved, "--scrub-paths").out
    for name in ("github", "html", "json", "markdown", "text"):
        assert "/home/ada" not in unstall("report", saved, "--scrub-paths", "--format", name).out


def test_top_takes_a_whole_number_from_1(unstall: Cli, saved: Path) -> None:
    assert "2. " not in unstall("report", saved, "--top", "1").out
    for wrong in ("0", "-1", "x", "1.5"):
        outcome = unstall("report", saved, f"--top={wrong}")
        assert (outcome.code, outcome.err) == (2, f"unstall: --top: {wrong!r} is not a whole number from 1 on\n")


def test_a_saved_result_is_held_to_budgets_too(unstall: Cli, saved: Path) -> None:
    assert unstall("report", saved, "-q", "--max-idle", "32%").code == 0
    outcome = unstall("report", saved, "-q", "--max-idle", "30%", "--max-exposed", "5ms")
    assert outcome.code == 1
    assert outcome.err.count("unstall: over budget: ") == 2
    assert " of a step as recorded, the budget is 30 %\n" in outcome.err


def test_a_trace_is_no_result(unstall: Cli, trace: Path) -> None:
    outcome = unstall("report", trace)
    assert outcome.code == 3
    assert "a trace is explained with `unstall explain`" in outcome.err.lower()


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """A saved audit."""
    path = tmp_path / "audit.json"
    Audited(AUDIT).save(path)
    return path


def test_a_saved_audit_is_shown_as_audit_shows_it(
    unstall: Cli, audit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page, markdown = tmp_path / "audit.html", tmp_path / "audit.md"
    assert unstall("report", audit, "-o", page, "-o", markdown) == Outcome(
        0, render(Audited(AUDIT).document(), "text"), ""
    )
    assert markdown.read_text() == render(Audited(AUDIT).document(), "markdown")
    assert page.read_text().startswith("<!doctype html>")
    assert unstall("report", audit, "--json").out == audit.read_text()


def test_a_saved_audit_has_no_budgets(unstall: Cli, audit: Path) -> None:
    outcome = unstall("report", audit, "--max-idle", "10%")
    assert (outcome.code, outcome.out) == (2, "")
    assert "audit.json: this is an audit, which has no budgets" in outcome.err


def test_what_else_was_saved_is_refused_by_its_schema(unstall: Cli, tmp_path: Path) -> None:
    other = tmp_path / "diff.json"
    other.write_text('{"schema": "unstall.diff/1"}')
    outcome = unstall("report", other)
    assert outcome.code == 3
    assert "its schema is 'unstall.diff/1', and this version of unstall reads 'unstall.explain/1' and" in outcome.err


def test_a_saved_audit_is_no_trace(unstall: Cli, audit: Path) -> None:
    outcome = unstall("explain", audit)
    assert outcome.code == 3
    assert f"this is a saved result; `unstall report {audit}` shows it again" in outcome.err
