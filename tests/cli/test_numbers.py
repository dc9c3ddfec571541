"""`unstall numbers`: ways to run a program, and recordings of two."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from cli.command import Cli

pytestmark = pytest.mark.slow

PROGRAM = """
    import sys
    import torch
    import unstall

    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4)
    x = torch.randn(8, 16)

    with unstall.recording_numbers("block.numbers"):
        y = model(x)
        if "wrong" in sys.argv:
            y = y * 1.01
        print("result", y.square().sum().item())
    print("after", (y + 1).sum().item())
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def test_ways_of_a_program_are_compared(unstall: Cli, program: Path) -> None:
    got = unstall("numbers", "--json", "--across", "repeat,float64", str(program))
    assert got.code == 0, got.err
    assert [way["is"] for way in json.loads(got.out)["ways"]] == ["equal", "rounding"]


def test_recordings_of_a_program_and_a_change_of_it_are_compared(unstall: Cli, program: Path) -> None:
    assert unstall("numbers", "--record", "a.numbers", str(program)).code == 0
    assert unstall("numbers", "--record", "b.numbers", str(program), "wrong").code == 0
    got = unstall("numbers", "--json", "a.numbers", "b.numbers")
    assert got.code == 1, got.err
    (way,) = json.loads(got.out)["ways"]
    assert way["is"] == "factor"
    assert unstall("numbers", "a.numbers", "a.numbers").code == 0


def test_only_blocks_that_the_program_records_are_recorded(unstall: Cli, program: Path) -> None:
    assert unstall("numbers", "--record", "a.numbers", str(program)).code == 0
    names = [json.loads(line).get("name", "") for line in Path("a.numbers").read_text().splitlines()]
    assert [name for name in names if "print" in name] == ['1 of print("result", y.square().sum().item())']
    assert not Path("block.numbers").exists()


def test_a_run_ends_after_so_many_operators(unstall: Cli, program: Path) -> None:
    program.write_text("import torch\nx = torch.ones(3)\nwhile True:\n    x = x * 0.999\n")
    got = unstall("numbers", "--operators", "50", "--across", "repeat", str(program))
    assert got.code == 0, got.err
    assert "equal" in got.out


def test_a_program_that_fails_is_no_traceback_of_ours(unstall: Cli, program: Path) -> None:
    program.write_text("import torch\ntorch.ones(3) + 1\nraise ValueError('so')\n")
    got = unstall("numbers", str(program))
    assert got.code == 3
    assert "the program fails with exit code 1" in got.err
    program.write_text("print('no torch')\n")
    assert "does not import torch" in unstall("numbers", str(program)).err


def test_what_is_not_understood_is_said(unstall: Cli, program: Path) -> None:
    assert "'tpu'" in unstall("numbers", "--across", "tpu", str(program)).err
    assert "two files" in unstall("numbers", "a.numbers").err
    assert "which program" in unstall("numbers").err
