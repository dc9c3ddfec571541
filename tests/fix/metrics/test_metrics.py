"""`MetricBuffer` without a GPU, on the virtual one, and on a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu

import unstall

IN_ORDER = """
import torch
from unstall import MetricBuffer

rows, late = [], []
metrics = MetricBuffer(rows.append, max_lag=5)
x = torch.ones(400, 400, device="cuda")
for step in range(300):
    y = x @ x
    loss = y.mean() * 0 + step
    extra = {"count": torch.tensor([2**40 + step], device="cuda")} if step % 7 == 0 else {}
    metrics.add(loss=loss, half=loss.to(torch.bfloat16), lr=0.5, **extra)
    loss.fill_(-1.0)
    late.append(step + 1 - len(rows))
metrics.flush()
assert [row.step for row in rows] == list(range(300))
assert all(row.values["loss"] == row.step and row.values["lr"] == 0.5 for row in rows)
assert all(row.values["count"] == 2**40 + row.step for row in rows if row.step % 7 == 0)
assert list(rows[7].values) == ["loss", "half", "lr", "count"]
assert max(late) <= 5 and metrics.stats().longest_lag <= 5, (late, metrics.stats())
print("IN ORDER")
"""

STOPS = """
import torch
from unstall import MetricBuffer

metrics = MetricBuffer(max_lag=3, stop_on_nan=True)
try:
    for step in range(100):
        metrics.add(acc=torch.ones((), device="cuda"), loss=torch.log(torch.tensor(10.0 - step, device="cuda")))
except FloatingPointError as error:
    assert str(error) == "loss is NaN in step 11" and step <= 14, (error, step)
    print("STOPPED")
"""

LEAVES = """
import sys
import torch
from unstall import MetricBuffer

device = "cuda" if torch.cuda.is_available() else "cpu"
metrics = MetricBuffer(lambda row: print("ROW", row.step, row.values["loss"], flush=True), max_lag=50)
def train():
    metrics = MetricBuffer(lambda row: print("ROW", row.step, row.values["loss"], flush=True), max_lag=50)
    for step in range(20):
        metrics.add(loss=torch.full((), float(step), device=device))
    {}
train()
"""


def test_without_a_gpu_values_are_there_at_once_and_stats_say_so() -> None:
    metrics = unstall.MetricBuffer()
    loss = torch.tensor(1.5)
    metrics.add(loss=loss, lr=0.1)
    loss.zero_()
    assert [(row.step, dict(row.values)) for row in metrics.take()] == [(0, {"loss": 1.5, "lr": 0.1})]
    assert metrics.take() == []
    assert "nothing was on a device" in str(metrics.stats())


def test_a_metric_of_several_elements_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"acc has the shape \(2,\)"):
        unstall.MetricBuffer().add(acc=torch.ones(2))


def test_a_nan_raises_and_its_row_is_delivered_before() -> None:
    rows: list[object] = []
    metrics = unstall.MetricBuffer(rows.append, stop_on_nan=True)
    with pytest.raises(FloatingPointError, match="loss is NaN in step 0"):
        metrics.add(loss=torch.tensor(float("nan")))
    assert len(rows) == 1


@pytest.mark.slow
@pytest.mark.parametrize("program", [IN_ORDER, STOPS])
def test_values_come_in_order_within_the_lag_on_the_virtual_gpu(tmp_path: Path, program: str) -> None:
    assert on_virtual_gpu(tmp_path, program).splitlines()[0] in ("IN ORDER", "STOPPED")


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("program", [IN_ORDER, STOPS])
def test_values_come_in_order_within_the_lag_on_a_real_gpu(tmp_path: Path, program: str) -> None:
    assert on_real_gpu(tmp_path, program).splitlines()[0] in ("IN ORDER", "STOPPED")


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("last", ["raise KeyError", "sys.exit(3)", "pass"])
def test_nothing_is_lost_on_the_way_out(tmp_path: Path, last: str, gpu: bool) -> None:
    start = "import unstall\nunstall.virtual_gpu('h200').start()\n" if gpu else ""
    (tmp_path / "leaves.py").write_text(start + LEAVES.format(last))
    ran = subprocess.run([sys.executable, str(tmp_path / "leaves.py")], capture_output=True, text=True, check=False)
    assert [line for line in ran.stdout.splitlines() if line.startswith("ROW")] == [
        f"ROW {step} {float(step)}" for step in range(20)
    ], ran.stderr
    assert ran.returncode == {"raise KeyError": 1, "sys.exit(3)": 3, "pass": 0}[last]
