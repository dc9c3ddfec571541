"""What is left of a look for races once it has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

_LOOKED = """
import sys
from pathlib import Path
import torch
torch._C._cuda_getCurrentRawStream = lambda device: 0  # a torch that was built with CUDA has this
from unstall.blaming.races.saved import keep_races, read_races

def callbacks():
    from torch.cuda import _gpu_trace
    return sum(len(each.callback_list) for each in vars(_gpu_trace).values() if hasattr(each, "callback_list"))

def look():
    keep_races(Path(sys.argv[1]))()
    assert not read_races(Path(sys.argv[1])).missing
"""


def told(folder: Path, program: str) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", _LOOKED + program, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_torchs_sanitizer_can_be_enabled_afterwards(tmp_path: Path) -> None:
    program = "look()\nfrom torch.cuda import _sanitizer\n_sanitizer.enable_cuda_sanitizer()\nprint(callbacks())\n"
    assert told(tmp_path, program) == "10\n"


def test_torchs_sanitizer_is_told_as_before_if_the_program_had_imported_it(tmp_path: Path) -> None:
    assert told(tmp_path, "import torch.cuda._sanitizer\nlook()\nprint(callbacks())\n") == "10\n"


def test_torchs_sanitizer_that_only_races_need_is_told_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, "look()\nprint(callbacks())\n") == "0\n"


def test_nothing_keeps_what_was_noted(tmp_path: Path) -> None:
    program = (
        "look()\nimport gc\nfrom unstall.blaming.races.watch import RaceWatch\ngc.collect()\n"
        "print(sum(type(each) is RaceWatch for each in gc.get_objects()))\n"
    )
    assert told(tmp_path, program) == "0\n"
