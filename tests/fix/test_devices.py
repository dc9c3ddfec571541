"""Devices that torch does not have are refused by name, before anything is iterated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fix.on_a_gpu import on_virtual_gpu

import unstall
from unstall.errors import UsageError

_TAKES_DEVICES: list[Callable[[Any], Any]] = [
    lambda device: unstall.prefetch([], device=device),
    lambda device: unstall.stream_map(abs, [], device=device),
]

_ONE_TOO_MANY = """
import unstall
from unstall.errors import UsageError

for take in (lambda: unstall.prefetch([], device="cuda:1"), lambda: unstall.stream_map(abs, [], device=1)):
    try:
        take()
    except UsageError as error:
        assert "torch has 1 cuda device" in str(error), error
    else:
        raise SystemExit("nothing was refused")
"""


@pytest.mark.parametrize("take", _TAKES_DEVICES)
@pytest.mark.parametrize("device", ["foo", "cuda:x", 1.5])
def test_what_is_no_device_is_refused(take: Callable[[Any], Any], device: Any) -> None:
    with pytest.raises(UsageError, match="is no device that torch has a name for"):
        take(device)


@pytest.mark.parametrize("take", _TAKES_DEVICES)
def test_that_there_is_none_at_all_is_no_error(take: Callable[[Any], Any]) -> None:
    assert list(take("cuda:9")) == []


def test_one_device_too_many_is_refused(tmp_path: Path) -> None:
    on_virtual_gpu(tmp_path, _ONE_TOO_MANY)


@pytest.mark.slow
def test_a_stream_of_another_device_is_current_for_a_while(tmp_path: Path) -> None:
    program = """
import torch
from unstall.fix.tensors.accelerator import accelerator_for

here, there = accelerator_for("cuda:0"), accelerator_for("cuda:1")
for accelerator, index in ((here, 0), (there, 1)):
    stream, before = accelerator.stream("x"), torch.cuda.current_stream(index)
    with accelerator.on(stream):
        assert torch.cuda.current_stream() == stream
        assert torch.ones(2, device="cuda").device.index == index
        with accelerator.on(accelerator.stream("y")):
            assert torch.cuda.current_stream() == accelerator.stream("y")
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream(index) == before
    assert torch.cuda.current_device() == 0
"""
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "unstall.virtual", "--gpu", "h200:2", str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
