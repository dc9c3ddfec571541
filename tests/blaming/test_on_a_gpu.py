"""Planted faults on a GPU are told at their lines."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

PROGRAMS = Path(__file__).parent / "programs"
HANGS = Path(__file__).parent / "hangs"
IN_PROCESS = """
import torch
import unstall

table = torch.randn(10, 4, device="cuda")
try:
    with unstall.blame() as blaming:
        for step in range(5):
            index = torch.arange(3, device="cuda") + (8 if step == 3 else 0)
            rows = table[index]
            total = rows.sum()
        print(total.item())
except RuntimeError as error:
    print(error.__notes__[0])
    print(blaming.report.result.suspects[0].where.line)
"""

IN_GRAPH = Path(__file__).parent / "core_dump" / "programs" / "in_graph.py"


def line_of(program: Path, comment: str) -> int:
    return next(n for n, line in enumerate(program.read_text().splitlines(), 1) if line.endswith(comment))


def blamed(program: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "unstall", "run", "--blame", *options, "--format", "json", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda program: program.stem)
def test_a_planted_fault_is_told_at_its_line(program: Path) -> None:
    assert blamed(program)["suspects"][0]["where"]["line"] == line_of(program, "# the fault")


@pytest.mark.parametrize("program", sorted(HANGS.glob("*.py")), ids=lambda program: program.stem)
def test_a_planted_hang_is_told_at_its_lines(program: Path) -> None:
    processes = blamed(program, "--hang-after", "5s", "--end-hung")["hang"]["processes"]
    streams = [each for process in processes for each in process["streams"] if each["is_sure"]]
    waiting = [process["at"]["line"] for process in processes if process["collective"]]
    source = program.read_text().splitlines()
    true = {n for n, line in enumerate(source, 1) if line.endswith("# the hang")}
    assert ({each["work"]["where"]["line"] for each in streams} or set(waiting)) == true


def test_a_second_run_tells_the_forward_line_of_a_backward_fault() -> None:
    program = PROGRAMS / "in_backward.py"
    forward = blamed(program, "--pin-down")["suspects"][0]["forward"]
    assert forward[0]["line"] == line_of(program, "# its forward")


def test_a_second_run_leaves_one_line_of_a_graph() -> None:
    lines = [
        [each["where"]["line"], *(other["line"] for other in each["others"])]
        for options in ((), ("--pin-down",))
        for each in blamed(IN_GRAPH, *options)["suspects"]
        if each["replayed"]
    ]
    fault = line_of(IN_GRAPH, "# the fault")
    assert lines == [[fault - 1, fault, fault + 1], [fault]]


def test_a_with_block_adds_its_line_to_the_error(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(IN_PROCESS)
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=120, check=False
    )
    note, line = done.stdout.splitlines()[-2:]
    assert line == "10"
    assert re.match(r"unstall: Device-side assert in the work of .*program\.py:10", note)
