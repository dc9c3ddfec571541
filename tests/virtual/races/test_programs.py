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
READ_BY_HOST = """
import torch
x = torch.randn(1 << 16, device="cuda")
host = torch.empty(1 << 16, pin_memory=True)
host.copy_(x, non_blocking=True)
{}
part = host[:8].view(2, 4)
y = {}
torch.cuda.synchronize()
z = {}
"""
OVERWRITTEN_BY_HOST = """
import torch
host = torch.ones(1 << 16).pin_memory()
x = host.to("cuda", non_blocking=True)
{}
host.fill_(2)
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


@pytest.mark.parametrize(
    "read", ["host.sum()", "host[3].item()", "part.tolist()", "torch.cat([host, host])", "host + 1"]
)
def test_a_download_that_the_host_reads_before_it_has_ended(tmp_path: Path, read: str) -> None:
    assert races(tmp_path, READ_BY_HOST.format("", read, read)) == ["RACE 8 Race: read before the write has finished"]


def test_a_download_that_the_host_has_waited_for(tmp_path: Path) -> None:
    read = "host.tolist()"
    assert races(tmp_path, READ_BY_HOST.format("torch.cuda.synchronize()", read, read)) == []
    assert races(tmp_path, READ_BY_HOST.format("torch.cuda.current_stream().synchronize()", read, read)) == []
    assert races(tmp_path, READ_BY_HOST.format("e = torch.cuda.Event(); e.record(); e.synchronize()", read, read)) == []


def test_shapes_of_what_is_downloaded_are_no_reads(tmp_path: Path) -> None:
    assert races(tmp_path, READ_BY_HOST.format("", "host.view(2, -1).t().shape, host.detach()", "host.sum()")) == []


def test_an_upload_that_the_host_overwrites_before_it_has_ended(tmp_path: Path) -> None:
    assert races(tmp_path, OVERWRITTEN_BY_HOST.format("")) == ["RACE 6 Race: overwritten before the read has finished"]
    assert races(tmp_path, OVERWRITTEN_BY_HOST.format("torch.cuda.synchronize()")) == []
