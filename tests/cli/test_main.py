"""The command line as a whole: help, version, errors in a sentence, exit codes, and clean ways to be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli.command import Cli

import unstall as package
from unstall.cli import build_parser, verbs


def test_the_verbs_are_the_modules() -> None:
    assert list(verbs()) == ["completion", "doctor", "explain", "report"]


def test_every_verb_says_in_a_line_what_it_is_for() -> None:
    for verb in verbs().values():
        assert (verb.__doc__ or "").partition("\n")[0].endswith(".")


def test_help_names_every_verb(unstall: Cli) -> None:
    outcome = unstall("--help")
    assert outcome.code == 0
    assert set(verbs()) <= set(outcome.out.split())


def test_version_is_the_packages(unstall: Cli) -> None:
    assert unstall("--version").out == f"unstall {package.__version__}\n"


@pytest.mark.parametrize(
    "args", [[], ["nothing"], ["explain"], ["explain", "x.json", "--nothing"], ["report", "--to", "5"]]
)
def test_a_wrong_command_exits_2_with_its_usage(unstall: Cli, args: list[str]) -> None:
    outcome = unstall(*args)
    assert outcome.code == 2
    assert outcome.err.startswith("usage: unstall")


def test_options_are_not_abbreviated(unstall: Cli, saved: Path) -> None:
    assert unstall("report", saved, "--scrub").code == 2


def test_python_m_unstall_is_the_command(saved: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unstall", "report", saved, "--top", "1"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "Findings, per step" in done.stdout


def test_an_error_cannot_move_the_cursor(unstall: Cli) -> None:
    outcome = unstall("report", "a\x1b[2J\nb.json")
    assert outcome.code == 3
    assert outcome.err == "unstall: a[2J b.json: cannot be read: No such file or directory\n"


def test_a_reader_that_leaves_early_is_no_error_to_see(saved: Path) -> None:
    command = [sys.executable, "-m", "unstall", "report", str(saved), "--format", "json"]
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write_end)
    assert done.returncode == 141
    assert done.stderr == ""


def test_ctrl_c_is_quiet(unstall: Cli, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Path, *args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", interrupted)
    outcome = unstall("report", saved)
    assert (outcome.code, outcome.err) == (130, "")


def test_a_terminal_without_unicode_still_gets_a_report(saved: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "unstall", "report", str(saved)]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 0
    assert b"Findings, per step" in done.stdout


def test_no_colour_where_nobody_wants_it(saved: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "unstall", "report", saved], capture_output=True)
    assert b"\x1b" not in done.stdout


def test_options_of_verbs_have_help() -> None:
    for name in verbs():
        parser = build_parser()
        assert "None" not in parser.format_help(), name
