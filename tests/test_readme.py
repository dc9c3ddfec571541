"""What the README shows is what a reader gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstall.answers.explain import explain
from unstall.cli import build_parser, verbs
from unstall.cli._recording import Teller
from unstall.recording.journal import Follower, Journal

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_excerpt_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.search(r"```\n\$ unstall explain (\S+)\n(.*?)```", README, re.DOTALL)
    assert shown
    assert shown[2] == str(explain(shown[1]))


def test_every_verb_is_in_it() -> None:
    assert [verb for verb in verbs() if f"unstall {verb} " not in README] == []


@pytest.mark.parametrize("verb", ["explain", "run"])
def test_every_option_is_in_it(verb: str) -> None:
    options = set(re.findall(r"--[a-z-]+", _help_of(verb)))
    assert len(options) >= 10
    assert sorted(option for option in options - {"--help", "--output", "--quiet"} if option not in README) == []


def test_what_a_recording_says_is_what_the_command_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unstall.cli._recording.has_gpu", lambda: True)
    journal = Journal(str(tmp_path))
    journal.write("window", recorder="cupti")
    journal.write("recorded", steps=5, by="optimizer")
    Teller(Follower(tmp_path), quiet=False).tell()
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert said in README


def _help_of(verb: str) -> str:
    parser = build_parser()
    subparsers = next(action for action in parser._actions if isinstance(action.choices, dict))
    assert isinstance(subparsers.choices, dict)
    return str(subparsers.choices[verb].format_help())
