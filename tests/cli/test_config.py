"""`[tool.unstall]` of pyproject.toml: which file counts, what it sets, and what is refused."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstall.cli import parse
from unstall.cli._config import MAX_BYTES, configure
from unstall.errors import UsageError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, within that of a project."""
    folder = tmp_path / "project" / "runs"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def _configured(*words: str) -> argparse.Namespace:
    args = parse(["run", *words, "train.py"])
    configure(args)
    return args


def _write(folder: Path, *lines: str, table: str = "tool.unstall") -> Path:
    path = folder / "pyproject.toml"
    path.write_text("\n".join([f"[{table}]", *lines]))
    return path


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('gpu = "h200:2"', "gpu", "h200:2"),
        ("steps = 10", "steps", 10),
        ("warmup = 0", "warmup", 0),
        ("after = 1.5", "after", 1.5),
        ("for = 2", "for_", 2.0),
        ("stop = true", "stop", True),
        ("stop = false", "stop", False),
        ('recorder = "torch"', "recorder", "torch"),
        ('output = "report.html"', "output", ["report.html"]),
        ('user = ["src/*", "train.py"]', "user", ["src/*", "train.py"]),
        ("json = true", "format", "json"),
        ("keep-arguments = true", "keep_arguments", True),
    ],
)
def test_a_key_is_the_long_name_of_an_option(here: Path, line: str, name: str, value: object) -> None:
    _write(here, line)
    assert getattr(_configured(), name) == value


def test_every_long_option_is_a_key(here: Path) -> None:
    parser = parse(["run", "train.py"]).parser
    refused = []
    for action in parser._actions:
        for name in action.option_strings:
            if not name.startswith("--") or name in ("--help", "--no-config"):
                continue
            text = "true" if action.nargs == 0 else f'"{(action.choices or ["x"])[0]}"'
            for value in (text, "1"):
                _write(here, f"{name[2:]} = {value}")
                try:
                    _configured()
                    break
                except UsageError:
                    continue
            else:
                refused.append(name)
    assert refused == []


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (["--steps", "3"], "steps", 3),
        (["--steps=10"], "steps", 10),
        (["-o", "mine.html"], "output", ["mine.html"]),
        (["--user", "lib/*"], "user", ["lib/*"]),
        (["--for", "2"], "steps", None),  # what is given excludes what is set
        (["--json"], "format", "json"),
    ],
)
def test_the_command_line_wins(here: Path, given: list[str], name: str, value: object) -> None:
    _write(here, "steps = 10", 'output = ["set.html"]', 'user = ["src/*"]', 'format = "markdown"')
    assert getattr(_configured(*given), name) == value


def test_an_option_of_the_program_is_none_of_ours(here: Path) -> None:
    _write(here, "steps = 10")
    args = parse(["run", "train.py", "--steps", "3"])
    configure(args)
    assert args.steps == 10


def test_no_config_leaves_the_file_unread(here: Path) -> None:
    _write(here, "steps = [")
    assert _configured("--no-config").steps is None


def test_the_nearest_file_that_has_the_table_counts(here: Path) -> None:
    _write(here, 'name = "runs"', 'dependencies = ["unstall"]', table="project")
    _write(here.parent, "steps = 4")
    _write(here.parent.parent, "steps = 5", "stop = true")
    args = _configured()
    assert (args.steps, args.stop) == (4, False)


@pytest.mark.parametrize(
    ("lines", "given", "said"),
    [
        (['gpu = "h200"', "stop = true"], [], "options from ../pyproject.toml: --gpu h200 --stop"),
        (['user = ["a b", "c"]'], [], "options from ../pyproject.toml: --user 'a b' --user c"),
        (["steps = 10", "stop = false"], ["--steps", "3"], None),
        ([], [], None),
    ],
)
def test_what_is_used_is_said_in_a_line(here: Path, lines: list[str], given: list[str], said: str | None) -> None:
    _write(here.parent, *lines)
    assert configure(parse(["run", *given, "train.py"])) == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("step-count = 3", "step-count: unstall run has no such option"),
        ("warm-up = 3", "warm-up: unstall run has no such option; did you mean warmup?"),
        ("help = true", "help: unstall run has no such option"),
        ('steps = "10"', "steps: is text: give a number"),
        ("steps = true", "steps: is true or false: give a number"),
        ("steps = 0", "steps: '0' is not a whole number from 1 on"),
        ("steps = 2.5", "steps: '2.5' is not a whole number from 1 on"),
        ("gpu = 200", "gpu: is a number: give text in quotes"),
        ("gpu = {name = 'h200'}", "gpu: is a table: give text in quotes"),
        ("stop = 1", "stop: is a number: give true or false"),
        ("user = ['a', 1]", "user: is a list: give text in quotes, or a list of such"),
        ("after = 2026-01-01", "after: is a date or a time: give a number"),
        ("recorder = 'cuppti'", "recorder: is none of auto, cupti, torch; did you mean cupti?"),
        ("steps = 5\nfor = 2", "for: excludes steps: keep one of them"),
        ("json = true\nformat = 'text'", "format: excludes json: keep one of them"),
    ],
)
def test_a_key_or_a_value_that_is_wrong_is_refused(here: Path, line: str, said: str) -> None:
    _write(here, line)
    with pytest.raises(UsageError) as raised:
        _configured()
    assert str(raised.value) == f"pyproject.toml: [tool.unstall] {said}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[tool.unstall]\nsteps = ", "pyproject.toml: cannot be read: Invalid value (at end of document)"),
        (b"[tool.unstall]\nuser = \xff", "pyproject.toml: cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (b"[tool]\nunstall = 3", "pyproject.toml: tool.unstall is a number: make it a table, [tool.unstall]"),
        (b"[tool.unstall]\nuser = " + b"[" * 100_000, "pyproject.toml: cannot be read: "),
        (b"[tool.unstall]\nsteps = 0x" + b"f" * 100_000, "pyproject.toml: [tool.unstall] steps: is too large"),
        (b"[tool.unstall]\n" + b"#" * MAX_BYTES, "pyproject.toml: larger than 1 MiB"),
        (b"[tool.unstall]\n" + b"k" * 1000 + b" = 1", "pyproject.toml: [tool.unstall] " + "k" * 40),
    ],
)
def test_a_hostile_file_is_refused_in_a_sentence(here: Path, text: bytes, said: str) -> None:
    (here / "pyproject.toml").write_bytes(text)
    with pytest.raises(UsageError) as raised:
        _configured()
    assert str(raised.value).startswith(said)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    "text", [b"", b"[project]\nname = ", b"\xff" * 100, b"#" * (MAX_BYTES + 1), b"tool = 3 # unstall"]
)
def test_a_file_that_is_not_about_unstall_is_passed_over(here: Path, text: bytes) -> None:
    (here / "pyproject.toml").write_bytes(text)
    assert configure(parse(["run", "train.py"])) is None


def test_a_pipe_or_a_folder_of_that_name_is_passed_over(here: Path) -> None:
    os.mkfifo(here / "pyproject.toml")
    (here.parent / "pyproject.toml").mkdir()
    assert configure(parse(["run", "train.py"])) is None


def test_a_run_says_whose_options_it_takes(here: Path) -> None:
    _write(here, "steps = 7")
    (here / "train.py").write_text("print('ran')")
    command = [sys.executable, "-m", "unstall", "run", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0] == "unstall: options from pyproject.toml: --steps 7"
    assert done.stdout == "ran\n"
