"""What a real GPU would be asked, asked of a virtual one: it says the same as the virtual one's own counts."""

from __future__ import annotations

import json
import sys

import pytest
from processes import succeeded
from testing.running import PROGRAMS, line_of
from traces import TraceBuilder

from unstall.testing.sources import launches_of


@pytest.mark.slow
def test_memory_and_races_are_those_of_the_virtual_gpu() -> None:
    done = succeeded([sys.executable, str(PROGRAMS / "real_gpu.py")])
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["virtual"] == found["real"] == 60 << 20
    assert found["races"] == [[line_of("real_gpu", "the race"), "Race: read before the write has finished"]]


@pytest.mark.slow
def test_a_gpu_that_the_test_does_not_use_is_not_initialized() -> None:
    done = succeeded([sys.executable, str(PROGRAMS / "unused_gpu.py")])
    assert json.loads(done.stdout) == {"gpu": "", "launches": 0, "is_initialized": False}


def test_launches_of_a_recording_are_calls_that_put_work_on_the_gpu() -> None:
    trace = TraceBuilder()
    trace.launch("gemm", 10)
    trace.graph([3, 3, 3])
    trace.copy("DtoH", 5)
    trace.item()
    trace.sync("device")
    assert launches_of(trace.timeline()) == 4
