"""`MetricBuffer` without a GPU, on the virtual one, and on a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fix.on_a_gpu import on_real_gpu, on_virtual_gpu
from hypothesis import given
from hypothesis import strategies as st

import unstall
from unstall.errors import UsageError
from unstall.fix.metrics import MetricBuffer, MetricRow, MetricStats

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

ON_TWO_STREAMS = """
import torch
from unstall import MetricBuffer

rows = []
metrics = MetricBuffer(rows.append, max_lag=4)
behind, other = torch.cuda.Stream(), torch.cuda.Stream()
def add(first, stream):
    with torch.cuda.stream(stream):
        metrics.add(x=torch.full((), first, device="cuda"), y=torch.full((), first + 1, device="cuda"))
with torch.cuda.stream(behind):
    torch.cuda._sleep(200_000_000)
for first, stream in [(1.0, behind), (3.0, other), (5.0, other)]:
    add(first, stream)
metrics.flush()
assert [tuple(row.values.values()) for row in rows] == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)], rows
print("EACH ITS OWN")
"""

REFUSED = """
import torch
from unstall import MetricBuffer
from unstall.errors import UsageError

rows = []
metrics = MetricBuffer(rows.append, max_lag=32)
with torch.cuda.stream(torch.cuda.Stream()):
    metrics.add(x=torch.full((), 1.0, device="cuda"), y=torch.full((), 2.0, device="cuda"))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        metrics.add(x=torch.ones((), device="cuda"), y=torch.ones((), device="cuda"))
    except UsageError as error:
        assert "cannot be captured" in str(error), error
    graph.capture_end()
metrics.flush()
assert [tuple(row.values.values()) for row in rows] == [(1.0, 2.0)], rows
print("REFUSED")
"""


def test_without_a_gpu_values_are_there_at_once_and_stats_say_so() -> None:
    metrics = unstall.MetricBuffer()
    loss = torch.tensor(1.5)
    metrics.add(loss=loss, lr=0.1)
    loss.zero_()
    assert [(row.step, dict(row.values)) for row in metrics.take()] == [(0, {"loss": 1.5, "lr": 0.1})]
    assert metrics.take() == []
    assert "nothing was on a device" in metrics.stats().text


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


# Kinds of values, the ways out of a block, deliverers that fail, and what cannot be.
HARD = """
import threading
import torch
from unstall import MetricBuffer
from unstall.errors import UsageError

D = "cuda" if torch.cuda.is_available() else "cpu"

def on(value, **kind):
    return torch.tensor(value, device=D, **kind)

rows = []
metrics = MetricBuffer(rows.append)
metrics.add(big=on(2**60 + 1), yes=on(True), half=on(1.5, dtype=torch.bfloat16), fine=on(1 / 3, dtype=torch.float64),
            host=torch.tensor(3), one=on([[4.0]]), number=5, text="x",
            trained=torch.nn.Parameter(on(2.0)), pair=on(1 + 2j))
metrics.flush()
assert dict(rows[0].values) == dict(big=2**60 + 1, yes=True, half=1.5, fine=1 / 3, host=3, one=4.0, number=5, text="x",
                                    trained=2.0, pair=1 + 2j), rows

rows.clear()
for number in range(30):  # metrics that some steps have
    odd = {"odd": on(float(number))} if number % 2 else {}
    metrics.add(**odd, **({"third": on(number)} if number % 3 == 0 else {}))
metrics.flush()
assert [sorted(row.values) for row in rows] == [["odd"] * (n % 2) + ["third"] * (n % 3 == 0) for n in range(30)]

for raised in (KeyboardInterrupt, SystemExit, ValueError):
    rows.clear()
    try:
        with MetricBuffer(rows.append, max_lag=100) as left:
            for number in range(20):
                left.add(loss=on(float(number)))
            raise raised
    except raised:
        pass
    assert [row.values["loss"] for row in rows] == list(range(20)), raised

taken = MetricBuffer(stop_on_nan=True, max_lag=100)
try:
    for number in range(4):
        taken.add(loss=on(float("nan") if number == 2 else 1.0))
    taken.flush()
    raise SystemExit("no NaN was seen")
except FloatingPointError:
    assert 2 in [row.step for row in taken.take()]

rows.clear()
shared = MetricBuffer(rows.append, max_lag=4)
threads = [threading.Thread(target=lambda: [shared.add(x=on(1.0)) for _ in range(50)]) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
shared.flush()
assert [row.step for row in rows] == list(range(200))

with torch.inference_mode():
    shared.add(x=on(1.0))
shared.add(x=on(2.0, requires_grad=True) * 1)
shared.flush()
assert [row.values["x"] for row in rows[-2:]] == [1.0, 2.0]

if D == "cuda":
    graph, x = torch.cuda.CUDAGraph(), on(1.0)
    try:
        with torch.cuda.graph(graph):
            shared.add(x=x)
        raise SystemExit("it was captured")
    except UsageError as error:
        assert "return the metrics" in str(error)
print("HELD")
"""


def test_kinds_and_ways_out_without_a_gpu() -> None:
    exec(compile(HARD, "hard", "exec"), {"__name__": "hard"})


@pytest.mark.slow
def test_kinds_and_ways_out_on_the_virtual_gpu(tmp_path: Path) -> None:
    assert "HELD" in on_virtual_gpu(tmp_path, HARD)


@pytest.mark.gpu
@pytest.mark.slow
def test_kinds_and_ways_out_on_a_real_gpu(tmp_path: Path) -> None:
    assert "HELD" in on_real_gpu(tmp_path, HARD)


# On the way out a deliverer that fails hides neither the other rows nor the error that is on its way.
FAILS = """
import torch
from unstall import MetricBuffer

took = []

def take(row):
    if row.step == 3:
        raise ConnectionError("no network")
    took.append(row.step)

try:
    with MetricBuffer(take, max_lag=100) as metrics:
        torch.cuda._sleep(1 << 40)
        for number in range(8):
            metrics.add(loss=torch.ones((), device="cuda"))
        assert took == []
        raise KeyError("mine")
except KeyError:
    assert took == [0, 1, 2, 4, 5, 6, 7], took
print("ALL BUT ONE")
"""


@pytest.mark.slow
def test_a_deliverer_that_fails_hides_no_other_row_and_no_error(tmp_path: Path) -> None:
    assert "ALL BUT ONE" in on_virtual_gpu(tmp_path, FAILS)


@given(st.lists(st.lists(st.sampled_from(["loss", "acc", "count"]), unique=True), max_size=12), st.integers(0, 5))
def test_rows_are_those_that_were_added_whatever_each_step_has(steps: list[list[str]], max_lag: int) -> None:
    rows: list[MetricRow] = []
    with unstall.MetricBuffer(rows.append, max_lag=max_lag) as metrics:
        for number, names in enumerate(steps):
            metrics.add(**{name: torch.tensor(number + len(name)) for name in names})
    assert [row.step for row in rows] == list(range(len(steps)))
    wanted = [{name: number + len(name) for name in names} for number, names in enumerate(steps)]
    assert [dict(row.values) for row in rows] == wanted


@pytest.mark.slow
def test_a_stream_that_is_behind_writes_to_no_row_of_another(tmp_path: Path) -> None:
    assert "EACH ITS OWN" in on_virtual_gpu(tmp_path, ON_TWO_STREAMS)


@pytest.mark.slow
def test_what_is_refused_in_a_capture_loses_no_row_before_it(tmp_path: Path) -> None:
    assert "REFUSED" in on_virtual_gpu(tmp_path, REFUSED)


def test_what_it_prints_says_how_far_it_is() -> None:
    metrics = unstall.MetricBuffer(print, max_lag=3)
    assert repr(metrics).startswith("MetricBuffer(print, max_lag=3): 0 steps")


# Three metrics a step of 42 small layers, which the host bounds.
COSTS = """
import time
import torch
from unstall import MetricBuffer

layers = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(42)]).cuda().requires_grad_(False)
x = torch.ones(8, 32, device="cuda")

def steps(use, count=24):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        y = layers(x)
        use(loss=y.mean(), largest=y.max(), least=y.min())
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e3

steps(MetricBuffer(lambda row: None).add)  # loads the kernels, which takes longer than all else
metrics = MetricBuffer(lambda row: None)
none, buffered = steps(lambda **_: None), steps(metrics.add)
at_once = steps(lambda **values: [value.item() for value in values.values()])
assert 1.0 < none < 1.6, none
assert buffered < 1.02 * none, (none, buffered)
stats = metrics.stats()
assert 0 < stats.gain_ns < (at_once - buffered) * stats.steps * 1e6, (stats, at_once, buffered)
print("CHEAP")
"""

# Rows that are not copied yet: read before they are due, made on several streams, and behind a device that is late.
PARTS = """
import torch
from unstall import MetricBuffer

def on(value):
    return torch.full((), float(value), device="cuda")

metrics = MetricBuffer()
for number in range(6):
    metrics.add(a=on(number), b=on(-number))
torch.cuda.synchronize()
assert [row.values["a"] for row in metrics.take()] == list(range(6))

streams = [torch.cuda.Stream() for _ in range(2)]
for number in range(12):
    with torch.cuda.stream(streams[number // 3 % 2]):
        metrics.add(a=on(number), b=on(-number))
metrics.flush()
assert [(row.values["a"], row.values["b"]) for row in metrics.take()] == [(n, -n) for n in range(12)]

late = []
metrics = MetricBuffer(lambda row: late.append(row.step), max_lag=16)
torch.cuda._sleep(1 << 24)
for number in range(16):
    metrics.add(a=on(number), b=on(-number))
assert late == [] and metrics.stats().waited_ns == 0, (late, metrics.stats())
metrics.add(a=on(16))
assert 1 <= len(late) <= 16 // 4 and metrics.stats().waited_ns > 0, late
print("WHOLE")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [COSTS, PARTS])
def test_three_metrics_cost_less_than_a_fiftieth_and_rows_not_yet_copied_are_not_lost(
    tmp_path: Path, program: str
) -> None:
    assert on_virtual_gpu(tmp_path, program).splitlines()[0] in ("CHEAP", "WHOLE")


@pytest.mark.gpu
@pytest.mark.slow
def test_rows_that_are_not_copied_yet_are_not_lost_on_a_real_gpu(tmp_path: Path) -> None:
    assert "WHOLE" in on_real_gpu(tmp_path, PARTS)


def test_stats_say_what_it_costs_and_what_was_lost() -> None:
    stats = MetricStats(
        steps=10, arrived=10, longest_lag=1, add_ns=500_000, waited_ns=0, spared_ns=20_000, calls_ns=180_000, note=""
    )
    assert stats.gain_ns == -300_000
    assert "costs 50.0 µs a step" in stats.text
    assert stats.text.endswith("reading at once would cost at least 20.0 µs a step: that is up to 30.0 µs lost")


@pytest.mark.parametrize(
    ("calls_ns", "said"), [(515_000, ", about as much"), (485_000, ", about as much"), (600_000, "gained")]
)
def test_a_difference_that_a_clock_cannot_tell_is_neither_lost_nor_gained(calls_ns: int, said: str) -> None:
    stats = MetricStats(
        steps=10, arrived=10, longest_lag=1, add_ns=500_000, waited_ns=0, spared_ns=0, calls_ns=calls_ns, note=""
    )
    assert stats.text.endswith(said)


@pytest.mark.parametrize("wrong", ["x", None, 1.5, True, -1])
def test_a_lag_that_is_no_number_of_steps_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(UsageError, match="max_lag is a number of steps, not"):
        MetricBuffer(print, max_lag=wrong)
