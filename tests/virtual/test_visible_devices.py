"""CUDA_VISIBLE_DEVICES hides devices of the virtual machine, as CUDA does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstall.virtual.machine import visible_devices

_PROGRAM = """
import torch
print(torch.cuda.is_available(), torch.cuda.device_count())
print(torch.ones(1, device="cuda").device)
"""


@pytest.mark.parametrize(
    ("setting", "count"),
    [
        (None, 2),
        ("0,1", 2),
        ("1", 1),
        (" 1 , 0", 2),
        ("", 0),
        ("-1", 0),
        ("0,-1,1", 1),
        ("7", 0),
        ("1,1", 0),
        ("GPU-1", 1),
    ],
)
def test_the_first_device_that_does_not_exist_ends_the_list(setting: str | None, count: int) -> None:
    assert visible_devices(2, setting) == count


def test_a_program_that_sees_no_device_has_none(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "unstall.virtual", "--gpu", "h200", str(program)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "False 0\n"
    assert "RuntimeError: No CUDA GPUs are available" in done.stderr
