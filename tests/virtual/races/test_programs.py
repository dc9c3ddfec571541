"""Whole programs on the virtual GPU: those with races, and the same ones mended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

RUN = """
import runpy, sys
from unstall.virtual.entry import virtual_gpu
gpu = virtual_gpu("h200").start()
runpy.run_path(sys.argv[1], run_name="__main__")
gpu.stop()
for finding in gpu.explain().findings:
    if finding.wrong:
        print("RACE", finding.where.line, finding.title)
"""
STREAMS = """
import torch
first, second = torch.cuda.Stream(), torch.cuda.Stream()
with torch.cuda.stream(first):
    x = torch.empty(1 << 16, device="cuda")
    x.normal_()
{}
with torch.cuda.stream(second):
    y = x.sum()
torch.cuda.synchronize()
"""
FREED = """
import torch
side = torch.cuda.Stream()
x = torch.ones(1 << 16, device="cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    y = x * 2
{}
del x
z = torch.zeros(1 << 16, device="cuda")
torch.cuda.synchronize()
"""


def races(tmp_path: Path, program: str) -> list[str]:
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "program.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line.startswith("RACE")]


def test_a_sum_of_what_another_stream_still_fills(tmp_path: Path) -> None:
    assert races(tmp_path, STREAMS.format("")) == ["RACE 9 Race: read before the write has finished"]
    assert races(tmp_path, STREAMS.format("second.wait_stream(first)")) == []


def test_a_block_freed_while_another_stream_reads_it(tmp_path: Path) -> None:
    assert races(tmp_path, FREED.format("")) == [
        "RACE 10 Race: freed memory is reused while another stream still uses it"
    ]
    assert races(tmp_path, FREED.format("x.record_stream(side)")) == []
