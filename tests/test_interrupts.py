"""A program that Ctrl-C ended ends by SIGINT, whatever was run at its exit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import atexit, sys
from collections import namedtuple
from unstall.guest.interrupts import remember_interrupt

def at_exit():
    namedtuple("Compiled", "from_text")
    {last}

atexit.register(at_exit)
{end}
"""


@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
@pytest.mark.parametrize(
    ("last", "end", "code"),
    [
        ("pass", "raise KeyboardInterrupt", 1),  # what plain Python does, and is mended
        ("remember_interrupt()", "raise KeyboardInterrupt", -signal.SIGINT),
        ("remember_interrupt()", "raise ValueError", 1),
        ("remember_interrupt()", "sys.exit(3)", 3),
        ("remember_interrupt()", "pass", 0),
    ],
)
def test_an_interrupt_is_remembered(tmp_path: Path, how: list[str], last: str, end: str, code: int) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM.format(last=last, end=end))
    done = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


_PROMPT = """
from code import InteractiveConsole
lines = ["raise KeyboardInterrupt"]

def read(_):
    if not lines:
        raise EOFError
    return lines.pop()

prompt = InteractiveConsole()
prompt.raw_input = read
prompt.interact("", "")
"""


def test_one_at_a_prompt_that_went_on_is_not(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM.format(last="remember_interrupt()", end=_PROMPT))
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == 0, done.stderr


def test_one_after_which_python_asks_what_to_do_is_not(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM.format(last="remember_interrupt()", end="raise KeyboardInterrupt"))
    done = subprocess.run(
        [sys.executable, "-i", "program.py"],
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
