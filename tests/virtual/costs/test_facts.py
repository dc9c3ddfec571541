"""Facts are measured on a virtual GPU, whose true figures are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from unstall.virtual.costs import facts
from unstall.virtual.costs.gpu_file import encode, gpu_named

MEASURE = """
import json
from unstall.virtual.costs import facts
print(json.dumps({"latencies": facts._latencies(), "graph": facts._graph()}))
"""


@pytest.mark.ci
@pytest.mark.parametrize("launch_ns", [3_000, 25_000])
def test_latencies_are_those_of_the_device_however_slow_its_host_launches(tmp_path: Path, launch_ns: int) -> None:
    known = gpu_named("h200")
    slow = msgspec.structs.replace(known.file, host={"launch": launch_ns}, host_pace=1.0)
    gpu, program = tmp_path / "slow.json", tmp_path / "measure.py"
    gpu.write_bytes(encode(slow))
    program.write_text(MEASURE)
    ran = subprocess.run(
        [sys.executable, "-m", "unstall", "run", "-q", "--gpu", str(gpu), str(program)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    measured = json.loads(next(line for line in ran.stdout.splitlines() if line.startswith("{")))
    limits = known.limits
    latencies = measured["latencies"]
    assert latencies["timed_event"] == limits.timed_event
    assert (latencies["gap"], latencies["event"], latencies["wake"]) == (
        limits.gap,
        limits.event_latency,
        limits.wake_latency,
    )
    assert latencies["launch_call"] == launch_ns
    assert measured["graph"]["period"] - latencies["tiny_kernel"] == limits.graph_gap


def test_a_queue_that_ran_empty_is_refused() -> None:
    held, launches = (0, 100, "sleep", True), [(at, at + 30, "cudaLaunchKernel", False) for at in (10, 50, 90)]
    kernels = [(at, at + 5, "mul", True) for at in (110, 120, 130)]
    assert facts._filled([held, *launches[:2], *kernels]) == kernels
    with pytest.raises(RuntimeError, match="too slowly"):
        facts._filled([held, *launches, *kernels])
