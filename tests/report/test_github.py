"""GitHub workflow commands, read back by the rules of GitHub's runner."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from report.rendered import as_github
from report.sample import HOSTILE, TYPICAL, results

from unstall.document.plain import plain
from unstall.result import Result

_COMMAND = re.compile(r"::(notice|warning) ([^:]*)::(.*)")


def _parsed(text: str) -> list[tuple[str, dict[str, str], str]]:
    """(command, properties, message) of each line, unescaped as actions/runner does in ActionCommand.cs."""
    commands = []
    for line in text.splitlines():
        match = _COMMAND.fullmatch(line)
        assert match, line
        pairs = (pair.partition("=") for pair in match[2].split(","))
        properties = {key: value.replace("%3A", ":").replace("%2C", ",") for key, _, value in pairs}
        properties = {key: value.replace("%25", "%") for key, value in properties.items()}
        commands.append((match[1], properties, match[3].replace("%25", "%")))
    return commands


def test_harmless_findings_warn_nobody() -> None:
    commands = _parsed(as_github(TYPICAL))
    assert [name for name, _, _ in commands] == ["notice", "warning", "warning", "warning"]


def test_a_warning_stands_at_its_line() -> None:
    _, properties, message = _parsed(as_github(TYPICAL))[2]
    assert properties["file"].endswith("/train.py")
    assert properties["line"] == "41"
    assert "it costs the device 4.13 ms per step" in message


@given(results())
def test_every_line_is_one_of_our_commands(result: Result) -> None:
    commands = _parsed(as_github(result))
    costly = [finding for finding in result.findings if not finding.harmless]
    assert len(commands) == 1 + len(costly)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_title_survives_its_escaping(name: str) -> None:
    finding = msgspec.structs.replace(TYPICAL.findings[0], title=name)
    (_, _, (_, properties, _)) = (
        None,
        None,
        _parsed(as_github(msgspec.structs.replace(TYPICAL, findings=(finding,))))[1],
    )
    assert properties["title"] == f"unstall: {plain(name)}"


def test_github_shows_ten_annotations_so_no_more_are_made() -> None:
    many = msgspec.structs.replace(TYPICAL, findings=TYPICAL.findings[:1] * 30)
    assert len(_parsed(as_github(many))) == 11
    assert len(_parsed(as_github(many, top=20))) == 21
