"""What takes long says what it is; what does not says nothing."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from unstall.cli import _progress
from unstall.cli._progress import working


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_SOON_S", 0.05)
    monkeypatch.setattr(_progress, "_AGAIN_S", 0.05)


@pytest.mark.parametrize(("takes_s", "quiet", "said"), [(0.2, False, True), (0, False, False), (0.2, True, False)])
def test_long_work_is_said_once(capsys: pytest.CaptureFixture[str], takes_s: float, quiet: bool, said: bool) -> None:
    with working("analysing the run", quiet=quiet):
        time.sleep(takes_s)
    assert capsys.readouterr().err == "unstall: analysing the run …\n" * said


def test_a_terminal_is_told_how_long_it_has_taken_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    terminal = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", terminal)
    with working("analysing the run"):
        time.sleep(0.3)
    text = "".join(written)
    assert text.startswith("\r\x1b[Kunstall: analysing the run … 0 s")
    assert text.count("analysing") > 1
    assert text.endswith("s\r\x1b[K")


def test_an_error_is_passed_on_and_ends_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), working("writing the trace"):
        raise ValueError("broken")
    time.sleep(0.15)
    assert capsys.readouterr().err == ""
