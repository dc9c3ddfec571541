"""Planted races and correct programs on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from virtual.races.running import CORRECT, PLANTED, PROGRAMS, lines

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def blamed(program: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "unstall", "run", "--blame", "--races", "--format", "json", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, told["races_missing"]) == (0, ""), done.stderr
    return told


@pytest.mark.parametrize("program", PLANTED)
def test_the_planted_race_is_the_only_one_and_has_both_lines(program: str) -> None:
    (race,) = blamed(PROGRAMS / "planted" / f"{program}.py")["races"]

    assert (race["earlier"]["where"]["line"], race["later"]["where"]["line"]) == lines(program)


@pytest.mark.parametrize("program", CORRECT)
def test_a_correct_program_has_no_race(program: str) -> None:
    assert blamed(PROGRAMS / "correct" / f"{program}.py")["races"] == []
