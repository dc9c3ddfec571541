"""The example of docs/numbers.md says what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "numbers.md"
_FIGURE = re.compile(r"\d[\d.,e+-]*")


def test_the_example_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example, shown = re.findall(r"^```(?:python)?\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)[:2]
    program = tmp_path / "attention.py"
    program.write_text(example)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "attention.py", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert _words(shown) == _words(printed[printed.index(shown.partition("\n")[0]) :])


def _words(text: str) -> list[str]:
    """Without figures and rows of the chart, which rounding may change."""
    lines = [line for line in text.splitlines() if not set(line) & set("┤│")]
    return _FIGURE.sub("0", "\n".join(lines)).split()
