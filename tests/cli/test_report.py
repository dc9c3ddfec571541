"""`unstall report`: a saved result in any format, with or without its paths."""

from __future__ import annotations

import json as standard
from pathlib import Path

import pytest
from cli.command import Cli, Outcome
from report.rendered import as_github, as_json, as_markdown, as_text
from report.sample import TYPICAL


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
