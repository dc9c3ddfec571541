"""Shell completion, tried in the shells that are installed."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest
from cli.command import Cli

from unstall.cli import build_parser
from unstall.cli._completed import values_of


def _bash_completes(script: str, words: str) -> list[str]:
    lines = [
        script,
        f"COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))",
        '_unstall; printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("unstall ex", ["explain"]),
        ("unstall be", ["bench"]),
        ("unstall bench x --by w", ["wall"]),
        ("unstall do", ["doctor"]),
        ("unstall explain --max", ["--max-idle", "--max-exposed"]),
        ("unstall report --format m", ["markdown"]),
        ("unstall completion z", ["zsh"]),
        ("unstall doctor trace", [""]),
    ],
)
def test_bash_completes(unstall: Cli, words: str, completed: list[str]) -> None:
    assert _bash_completes(unstall("completion", "bash").out, words) == completed


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_a_script_names_every_verb_and_option(unstall: Cli, shell: str) -> None:
    script = unstall("completion", shell).out
    for word in ("explain", "report", "doctor", "completion", "max-idle", "scrub-paths", "markdown"):
        assert word in script


@pytest.mark.parametrize("shell", [*filter(shutil.which, ["bash", "fish", "zsh"])])
def test_a_script_is_valid_in_its_shell(unstall: Cli, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(unstall("completion", shell).out)
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_usage(unstall: Cli) -> None:
    assert unstall("completion", "tcsh").code == 2


_FILES = ("train.py", "my run.trace.json.gz", "run.json", "report.html", "notes.txt")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files and a folder `sub`."""
    for name in _FILES:
        (tmp_path / name).touch()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


_VALUES = [
    ("unstall run --gpu h", ["h100", "h200"]),
    ("unstall whatif --edit re", ["read-later", "remove-syncs", "reuse-pinned"]),
    ("unstall whatif --edit host", ["host-speed:"]),
    ("unstall run --recorder c", ["cupti"]),
    ("unstall run t", ["train.py"]),
    ("unstall explain ", ["my run.trace.json.gz", "run.json", "sub"]),
    ("unstall run --against r", ["run.json"]),
    ("unstall run --trace m", ["my run.trace.json.gz"]),
    ("unstall open r", ["report.html", "run.json"]),
    ("unstall explain -o n", ["notes.txt"]),
    ("unstall show 1 --source ", ["sub"]),
    ("unstall demo ", ["sub"]),
    ("unstall fleet --edit n", ["no-stragglers"]),
    ("unstall fleet --edit ra", ["rank-like:"]),
    ("unstall fleet --edit comm-s", ["comm-speed:"]),
    ("unstall fleet --on r", ["ray"]),
    ("unstall fleet r", ["run.json"]),
    ("unstall course al", ["all"]),
    ("unstall course tr", ["train.py"]),
    ("unstall course --copy ", ["sub"]),
    ("unstall show ", ["1", "2", "3", "my run.trace.json.gz", "run.json", "sub"]),
]


@pytest.mark.parametrize(("line", "completed"), _VALUES)
def test_bash_completes_values(unstall: Cli, files: Path, line: str, completed: list[str]) -> None:
    before, _, word = line.rpartition(" ")
    words = f"{before} '{word}'"
    assert sorted(_bash_completes(unstall("completion", "bash").out, words)) == completed


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "completed"), _VALUES)
def test_fish_completes_values(unstall: Cli, files: Path, line: str, completed: list[str]) -> None:
    script = files / "script.fish"
    script.write_text(unstall("completion", "fish").out)
    done = subprocess.run(["fish", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True)
    assert sorted(each.partition("\t")[0].rstrip("/") for each in done.stdout.splitlines()) == completed


def test_every_file_and_folder_that_an_argument_names_has_endings() -> None:
    """FILE, and the like, are the names of arguments that are files."""
    parser = build_parser()
    bare = [
        f"{verb} {action.option_strings or action.metavar}"
        for verb, subparser in _subparsers(parser).items()
        for action in subparser._actions
        if action.metavar in ("FILE", "TRACE", "RESULT", "DIR", "FOLDER", "SCRIPT", "A", "B")
        and action.help != argparse.SUPPRESS
        and not values_of(verb, action).endings
    ]
    assert bare == []


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)
