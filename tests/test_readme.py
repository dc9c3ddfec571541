"""What the README shows is what a reader gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unstall.cli import build_parser, verbs
from unstall.diagnose.explain import explain
from unstall.report import terminal

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_excerpt_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    shown = re.search(r"```\n\$ unstall explain (\S+)\n(.*?)```", README, re.DOTALL)
    assert shown
    assert shown[2] == terminal.render(explain(shown[1]).result)


def test_every_verb_and_every_option_of_explain_is_in_it() -> None:
    assert all(f"unstall {verb} " in README for verb in verbs())
    options = set(re.findall(r"--[a-z-]+", _help_of_explain()))
    assert sorted(option for option in options - {"--help", "--output", "--quiet"} if option not in README) == []


def _help_of_explain() -> str:
    parser = build_parser()
    subparsers = next(action for action in parser._actions if isinstance(action.choices, dict))
    assert isinstance(subparsers.choices, dict)
    return str(subparsers.choices["explain"].format_help())
