"""The recorders on a real GPU: what they record is what torch.profiler records, and lines and times are true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import unstall
from unstall.locate.places import find_places
from unstall.timeline.columns import DeviceKind, HostKind, Timeline

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
PROGRAMS = Path(__file__).parent / "programs"
_BRACKET_NS = 2_000


def run(tmp_path: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(script)
    trace = tmp_path / "t.trace.json.gz"
    trace.unlink(missing_ok=True)
    command = [sys.executable, "-m", "unstall", "run", *options, "--trace", str(trace), str(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)


def recorded(tmp_path: Path, script: str, *options: str) -> Timeline:
    done = run(tmp_path, script, *options)
    assert done.returncode == 0, done.stderr
    return unstall.load(tmp_path / "t.trace.json.gz")


def numbered(template: str) -> str:
    """Each AT becomes the number of its line."""
    lines = (PROGRAMS / template).read_text().splitlines()
    return "\n".join(line.replace("AT", str(number)) for number, line in enumerate(lines, 1)) + "\n"


DETERMINISTIC = (PROGRAMS / "deterministic.py.txt").read_text()


def test_counts_are_those_of_torch_profiler(tmp_path: Path) -> None:
    cheap = recorded(tmp_path, DETERMINISTIC, "--recorder", "cupti")
    usual = recorded(tmp_path, DETERMINISTIC, "--recorder", "torch")
    assert device_ops(cheap) == device_ops(usual)
    assert len(device_ops(cheap)) > 10
    assert sync_kinds(tmp_path, "cupti") == sync_kinds(tmp_path, "torch")


def device_ops(timeline: Timeline) -> Counter[tuple[str, int, int]]:
    """Of the marked steps: name, device and stream of each op, counted."""
    device = timeline.device
    launch = timeline.host.start[device.launch]
    start, end = window(timeline)
    rows = np.flatnonzero((device.launch >= 0) & (launch >= start) & (launch < end))
    streams = timeline.streams.stream
    return Counter(
        (timeline.text(int(device.name[row])), int(device.kind[row]), int(streams[device.stream[row]])) for row in rows
    )


def window(timeline: Timeline) -> tuple[int, int]:
    host = timeline.host
    steps = [
        row
        for row in np.flatnonzero(host.kind == HostKind.ANNOTATION)
        if timeline.text(int(host.name[row])).startswith("unstall.step#")
    ]
    return int(host.start[steps].min()), int(host.end[steps].max())


def sync_kinds(tmp_path: Path, recorder: str) -> Counter[tuple[str, int]]:
    import gzip

    done = run(tmp_path, DETERMINISTIC, "--recorder", recorder)
    assert done.returncode == 0, done.stderr
    document = json.loads(gzip.decompress((tmp_path / "t.trace.json.gz").read_bytes()))
    events = document["traceEvents"]
    steps = [event for event in events if event.get("name", "").startswith("unstall.step#")]
    start, end = min(each["ts"] for each in steps), max(each["ts"] + each["dur"] for each in steps)
    return Counter(
        (event["args"]["cuda_sync_kind"], event["args"]["stream"])
        for event in events
        if event.get("cat") == "cuda_sync" and start <= event["ts"] < end
    )


@pytest.mark.parametrize(
    "lines",
    [
        "calls",
        pytest.param(
            "monitoring",
            marks=pytest.mark.python(least=(3, 12)),
        ),
    ],
)
def test_each_kernel_is_at_the_line_that_launched_it(tmp_path: Path, lines: str) -> None:
    timeline = recorded(tmp_path, numbered("lines.py.txt"), "--recorder", "cupti", "--lines", lines)
    places = find_places(timeline)
    blocks = first_of_grid(tmp_path)
    device = timeline.device
    right = wrong = 0
    for row in np.flatnonzero((device.kind == DeviceKind.KERNEL) & (device.launch >= 0)):
        if "vectorized_elementwise" not in timeline.text(int(device.name[row])):
            continue
        place = int(places.place[device.launch[row]])
        line = int(timeline.lines.line[place]) if 0 <= place < len(timeline.lines) else -1
        if line == blocks[int(device.correlation[row])]:
            right += 1
        else:
            wrong += 1
    assert right > 200
    assert right / (right + wrong) >= 0.99


def first_of_grid(tmp_path: Path) -> dict[int, int]:
    """Blocks in x by correlation id."""
    import gzip

    document = json.loads(gzip.decompress((tmp_path / "t.trace.json.gz").read_bytes()))
    return {
        event["args"]["correlation"]: event["args"]["grid"][0]
        for event in document["traceEvents"]
        if event.get("cat") == "kernel"
    }


def test_calls_lie_within_brackets_of_our_own_clock() -> None:
    x = torch.zeros(1 << 20, device="cuda")
    brackets = []
    with unstall.record(recorder="cupti") as recording:
        for _ in range(50):
            x.mul_(1.0)
        for number in range(200):
            before = time.perf_counter_ns()
            if number % 10 == 9:
                x[:1].item()
            else:
                x.mul_(1.0)
            brackets.append((before, time.perf_counter_ns()))
    timeline = recording.timeline()
    host = timeline.host
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.SYNC))
    start, end = (host.start[calls] + timeline.meta.zero_ns, host.end[calls] + timeline.meta.zero_ns)
    first = brackets[0][0] - _BRACKET_NS
    mine = (start >= first) & (end <= brackets[-1][1] + _BRACKET_NS)
    opened = np.array([before for before, _ in brackets]) - _BRACKET_NS
    closed = np.array([after for _, after in brackets]) + _BRACKET_NS
    at = np.searchsorted(opened, start[mine], side="right") - 1
    assert mine.sum() >= 200
    assert (end[mine] <= closed[at]).all()


def test_backward_is_at_its_line(tmp_path: Path) -> None:
    timeline = recorded(tmp_path, (PROGRAMS / "backward.py.txt").read_text(), "--recorder", "cupti")
    places = find_places(timeline)
    main = timeline.host.thread[np.flatnonzero(timeline.host.kind == HostKind.ANNOTATION)[0]]
    launches = np.flatnonzero((timeline.host.kind == HostKind.LAUNCH) & (timeline.host.thread != main))
    lines = {int(timeline.lines.line[place]) for place in places.place[launches]}
    assert len(launches) > 20
    assert lines == {12}


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise ValueError('x')", 1),
        ("import sys; sys.exit(7)", 7),
        ("import os; os._exit(9)", 9),
        ("torch.zeros(4, device='cuda')[torch.tensor([99], device='cuda')]; torch.cuda.synchronize()", 1),
    ],
)
def test_a_program_ends_as_it_would(tmp_path: Path, ending: str, code: int) -> None:
    script = f"""import torch
import unstall
x = torch.zeros(1000, device="cuda")
for number in range(100000):
    x.mul_(1.0).sum().item()
    unstall.step()
    if number == 20000:
        {ending}
"""
    done = run(tmp_path, script, "--recorder", "cupti")
    plain = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == plain.returncode == code
    assert unstall.load(tmp_path / "t.trace.json.gz").meta.recorder == "cupti"


def test_a_killed_program_leaves_a_trace(tmp_path: Path) -> None:
    script = """import os, time, torch, unstall
x = torch.zeros(1000, device="cuda")
for number in range(10**9):
    x.mul_(1.0).sum().item()
    unstall.step()
    if os.path.exists("recording"):
        time.sleep(0.001)
        if time.time() - os.path.getmtime("recording") > 1.5:
            os.kill(os.getpid(), 9)
    elif number > 3000:
        open("recording", "w").close()
"""
    done = run(tmp_path, script, "--recorder", "cupti", "--after", "0", "--for", "60")
    assert done.returncode in (-9, 137)
    timeline = unstall.load(tmp_path / "t.trace.json.gz")
    assert (timeline.device.kind == DeviceKind.KERNEL).sum() > 1000
    assert any("cut short" in note for note in timeline.meta.notes)


def test_forked_workers_are_plain(tmp_path: Path) -> None:
    script = """import torch, unstall
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4096, 8))
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for (batch,) in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
        model(batch.cuda(non_blocking=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
print("all", epoch)
"""
    done = run(tmp_path, script, "--recorder", "cupti", "--full")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all 3\n"
    assert "optimizer steps" in done.stderr


def in_a_process(tmp_path: Path, script: str) -> str:
    """What a script prints. torch.profiler holds on to CUPTI for as long as its process lives."""
    program = tmp_path / "program.py"
    program.write_text("import torch, unstall\nx = torch.zeros(10, device='cuda')\n" + script)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_recordings_at_once_are_refused(tmp_path: Path) -> None:
    script = """
with unstall.record(recorder="cupti"):
    try:
        unstall.record(recorder="cupti").__enter__()
    except unstall.errors.UsageError as error:
        print(error)
"""
    assert "recording" in in_a_process(tmp_path, "import unstall.errors\n" + script)


def test_beside_torch_profiler_recording_is_refused_and_the_block_goes_on(tmp_path: Path) -> None:
    script = """
with torch.profiler.profile(), unstall.record(recorder="cupti") as recording:
    print(x.add_(1.0).sum().item())
try:
    recording.explain()
except unstall.errors.UnstallError as error:
    print(error)
"""
    value, refused = in_a_process(tmp_path, "import unstall.errors\n" + script).splitlines()
    assert value == "10.0"
    assert "another profiler uses CUPTI" in refused


def test_torch_profiler_works_after_a_recording(tmp_path: Path) -> None:
    script = """
with unstall.record(recorder="cupti") as recording:
    x.mul_(1.0)
print(len(recording.timeline().device))
with torch.profiler.profile() as profile:
    x.mul_(1.0)
    torch.cuda.synchronize()
kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
print(sum("elementwise" in event.name for event in kernels))
"""
    assert in_a_process(tmp_path, script) == "1\n1\n"


def test_without_cupti_torch_profiler_records_and_that_is_said(tmp_path: Path) -> None:
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text(
        "from importlib import import_module\nimport_module('unstall.cupti.recorder').find_library = lambda: None\n"
    )
    program = tmp_path / "program.py"
    program.write_text(DETERMINISTIC)
    command = [sys.executable, "-m", "unstall", "run", "--full", "--trace", str(tmp_path / "t.json.gz"), str(program)]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "libcupti was not found" in done.stderr
    assert unstall.load(tmp_path / "t.json.gz").meta.recorder == "torch"
