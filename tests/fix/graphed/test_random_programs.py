"""Whatever a program does, with its function served by graphs it does the same: results, state, errors, warnings."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fix.graphed.harness import on_tape
from fix.graphed.random_programs import Program, programs
from fix.graphed.side_by_side import difference
from hypothesis import HealthCheck, given, settings

_EVERYWHERE = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
_DEEP = int(os.environ.get("UNSTALL_RANDOM_PROGRAMS", "300"))  # so many; another seed: UNSTALL_RANDOM_SEED
_SEED = os.environ.get("UNSTALL_RANDOM_SEED", "0")


def _same(program: Program, **options: Any) -> None:
    found, stats = difference(program, lambda plain: on_tape(plain, strict=False, **options), "cpu")
    assert not found, f"{options}\n{found}\n{stats}\n{program.text()}"


@settings(_EVERYWHERE, max_examples=25, derandomize=True)
@given(programs())
def test_random_programs_do_the_same(program: Program) -> None:
    _same(program)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"shapes": "bucket"}, {"lanes": ()}, {"max_graphs": 1}, {"shapes": [3, 8], "max_graphs": 2}]
)
def test_many_random_programs_do_the_same(options: dict[str, Any]) -> None:
    settings(_EVERYWHERE, max_examples=_DEEP)(given(programs())(lambda program: _same(program, **options)))()


@pytest.mark.slow
def test_random_programs_do_the_same_on_a_virtual_gpu() -> None:
    program = Path(__file__).parent / "programs" / "random_on_a_gpu.py"
    launcher = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher, str(program), _SEED, str(_DEEP)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-6000:]
    assert int(done.stdout.split("SERVED ")[1].split()[0]) > _DEEP // 8
