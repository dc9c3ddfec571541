"""The command line as a whole: help, version, errors in a sentence, exit codes, and clean ways to be stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli.command import Cli

import unstall as package
from unstall.cli import build_parser, verbs


def test_the_verbs_are_the_modules() -> None:
    files = Path(build_parser.__code__.co_filename).parent.glob("[!_]*.py")
    assert list(verbs()) == sorted(file.stem for file in files)
    assert {"completion", "doctor", "explain", "report"} <= set(verbs())


def test_every_verb_says_in_a_line_what_it_is_for() -> None:
    for verb in verbs().values():
        assert (verb.__doc__ or "").partition("\n")[0].endswith(".")


def test_help_names_every_verb(unstall: Cli) -> None:
    outcome = unstall("--help")
    assert outcome.code == 0
    assert set(verbs()) <= set(outcome.out.split())


def test_version_is_the_packages(unstall: Cli) -> None:
    assert unstall("--version").out == f"unstall {package.__version__}\n"


@pytest.mark.parametrize("args", [[], ["explain"], ["explain", "x.json", "--nothing"], ["report", "--to", "5"]])
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


def test_ctrl_c_is_said_in_a_word(unstall: Cli, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def interrupted(self: Path, *args: Any, **named: Any) -> Any:  # pytest opens modules as they are imported
        if self == saved:
            raise KeyboardInterrupt
        return opened(self, *args, **named)

    monkeypatch.setattr(Path, "open", interrupted)
    outcome = unstall("report", saved)
    assert (outcome.code, outcome.err) == (130, "unstall: interrupted\n")


def test_ctrl_c_while_it_starts_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch, unstall: Cli) -> None:
    def interrupted(only: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unstall.cli.build_parser", interrupted)
    assert unstall("--version").code == 130


def test_a_terminal_without_unicode_gets_the_same_report_drawn_in_ascii(saved: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "COLUMNS": "80"}
    command = [sys.executable, "-m", "unstall", "report", str(saved)]
    done = subprocess.run(command, capture_output=True, env=environment, text=True, encoding="ascii")
    assert done.returncode == 0
    assert "?" not in done.stdout
    bar = "#" * 46 + "&" + ">" * 4 + ":" * 16 + "x" * 6 + "~~~+%.."
    assert done.stdout.splitlines()[7:9] == ["as recorded, per step", bar]
    assert "xx idle: sync     4.13 ms  7.2 %" in done.stdout
    assert "|  400 us  0.7 %" in done.stdout.replace("compute + copy", "|")


def test_what_cannot_be_written_is_said_in_a_sentence(saved: Path) -> None:
    command = [sys.executable, "-m", "unstall", "report", str(saved)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "unstall: the output: No space left on device\n")


def test_a_closed_stdout_takes_what_nobody_reads(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    command = f'"{sys.executable}" -m unstall report "{saved}" -o "{out}" >&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert out.read_text().startswith("### unstall")


def test_an_option_that_a_verb_lacks_is_answered_with_the_verbs_usage(unstall: Cli, saved: Path) -> None:
    outcome = unstall("report", saved, "--bogus")
    assert outcome.code == 2
    assert outcome.err.startswith("usage: unstall report ")
    assert outcome.err.endswith("unstall report: error: unrecognized arguments: --bogus\n")


def test_who_asks_for_html_is_told_how_to_have_it(unstall: Cli) -> None:
    assert unstall("explain", "x.json", "--html").err.endswith("give -o a name with that ending: -o report.html\n")


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("explain", "; unstall fleet takes the traces of all ranks of a job\n"),
        ("diff", "; of two jobs of many ranks, give each as a folder, or as a pattern in quotes\n"),
    ],
)
def test_who_gives_the_traces_of_many_ranks_is_told_how(unstall: Cli, verb: str, said: str) -> None:
    outcome = unstall(verb, *(f"train-rank{rank}.trace.json.gz" for rank in range(4)))
    assert (outcome.code, outcome.err.endswith(said)) == (2, True)


def test_no_colour_where_nobody_wants_it(saved: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "unstall", "report", saved], capture_output=True)
    assert b"\x1b" not in done.stdout


def test_help_fits_the_terminal_and_keeps_commands_as_they_are(unstall: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in verbs():
        said = unstall(name, "--help").out.splitlines()
        assert max(map(len, said)) <= 80, name
        if name == "run":
            assert "    torchrun --nproc-per-node 8 -m unstall run train.py" in said


def test_options_of_verbs_have_help() -> None:
    for name in verbs():
        parser = build_parser()
        assert "None" not in parser.format_help(), name


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["explian", "x.json"], "'explian' is no verb; did you mean explain?"),
        (["train.py"], "train.py is a program, and no verb: unstall run train.py"),
        (["--gpu", "h200", "x.py"], "a verb comes first, then its options: unstall run --gpu … SCRIPT"),
        (["a.trace.json.gz"], "a.trace.json.gz is a file, and no verb: unstall explain a.trace.json.gz"),
    ],
)
def test_a_first_word_that_is_no_verb_is_told_what_to_type(unstall: Cli, args: list[str], said: str) -> None:
    outcome = unstall(*args)
    assert (outcome.code, outcome.err) == (2, f"unstall: {said}\n")


def test_an_option_that_is_misspelt_is_answered_with_the_one_like_it(unstall: Cli) -> None:
    assert unstall("explain", "x.json", "--scrub-path").err.endswith("did you mean --scrub-paths?\n")


def test_an_edit_that_is_misspelt_is_answered_with_the_one_like_it(unstall: Cli, trace: Path) -> None:
    said = unstall("whatif", trace, "--edit", "remove-sync").err
    assert "there is no edit 'remove-sync'; did you mean remove-syncs? There are: " in said
