"""The recorder `torch` on a CPU: its clock against ours, and what is left of it in the trace."""

from __future__ import annotations

import cProfile
import gzip
import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from processes import forked

import unstall
from unstall.errors import TraceError, UnstallError
from unstall.guest import device
from unstall.guest.steps import step
from unstall.lines.clock import available
from unstall.locate.steps import find_steps
from unstall.recording.in_process import record
from unstall.recording.journal import read
from unstall.recording.torch_profiler import FILE, TorchProfiler
from unstall.recording.trace.torch_profile import read_profile
from unstall.timeline.columns import Timeline

torch = pytest.importorskip("torch", reason="the recorder torch needs torch")

pytestmark = pytest.mark.skipif(
    sys.gettrace() is not None and available() == "settrace", reason="a debugger or coverage traces the tests"
)

_STEPS = 1 + 200 + 1 + 2  # one of warm-up, those that are only timed, one that settles, those that are recorded
_SETTLING = 192  # at most so many come before those that are timed, if steps are long: if the machine is busy, say


def _forward(weight: Any, times: int) -> Any:
    total = weight
    for _ in range(times):
        total = weight @ weight  # here
        total = torch.sinh(total)  # and here
    return total


def _line_of(words: str) -> int:
    lines, first = inspect.getsourcelines(_forward)
    return first + next(number for number, line in enumerate(lines) if words in line)


def _places(timeline: Timeline, name: str) -> list[tuple[str, int, str]]:
    """The lines that operators of this name ran on."""
    host, lines = timeline.host, timeline.lines
    found = []
    for row in range(len(host)):
        if timeline.text(host.name[row]) == name and host.stack[row] >= 0:
            line = timeline.stacks.line[host.stack[row]]
            found.append((timeline.text(lines.file[line]), int(lines.line[line]), timeline.text(lines.function[line])))
    return found


def _recorded(folder: Path, **options: Any) -> tuple[dict[str, Any], Timeline]:
    """The trace of two steps of four matrix products each."""
    weight = torch.randn(128, 128) / 128
    with record(steps=2, recorder="torch", **options) as recording:
        for _ in range(_SETTLING + _STEPS):
            _forward(weight, 4)
            step()
    path = folder / "trace.json.gz"
    recording.save(path)
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document, unstall.load(path)


@pytest.mark.slow
def test_operators_lie_within_the_line_that_called_them(tmp_path: Path) -> None:
    document, timeline = _recorded(tmp_path, lines=available())
    steps = find_steps(timeline)
    assert (len(steps), timeline.meta.recorder, timeline.meta.exact_lines) == (2, "torch", True)
    assert timeline.meta.step_marks == "explicit"
    for operator, words in (("aten::mm", "# here"), ("aten::sinh", "# and here")):
        places = _places(timeline, operator)
        assert len(places) == 12  # of the two steps, and the one before them in which the recorder settles
        right = [place for place in places if place[1:] == (_line_of(words), "_forward")]
        assert right == places
        assert {Path(file).name for file, _, _ in right} == {Path(__file__).name}
    told = document["unstall"]
    assert (told["lines"], told["lines_by"], told["recorder"]) == ("exact", available(), "torch")
    assert "unstall.clock#" not in json.dumps(document)
    threads = {
        (event["pid"], event["tid"])
        for event in document["traceEvents"]
        if event.get("cat") in ("cpu_op", "python_function", "user_annotation")
    }
    assert threads == {(os.getpid(), threading.get_native_id())}


@pytest.mark.python(below=(3, 12))
def test_without_a_clock_the_profilers_own_stacks_are_of_functions(tmp_path: Path) -> None:
    document, timeline = _recorded(tmp_path, lines="auto")
    assert (document["unstall"]["lines"], timeline.meta.exact_lines) == ("def", False)
    first = inspect.getsourcelines(_forward)[1]
    assert {place[1:] for place in _places(timeline, "aten::mm")} == {(first, "_forward")}
    assert "unstall.clock#" not in json.dumps(document)


def test_shapes_are_recorded_where_asked_for(tmp_path: Path) -> None:
    _, with_shapes = _recorded(tmp_path, lines="none", shapes=True)
    shapes = {
        with_shapes.text(with_shapes.host.shapes[row])
        for row in range(len(with_shapes.host))
        if with_shapes.text(with_shapes.host.name[row]) == "aten::mm"
    }
    assert shapes == {"[[128,128],[128,128]]"}
    assert _places(with_shapes, "aten::mm") == []


def test_the_profiles_clock_is_held_to_ours_by_its_annotations(tmp_path: Path) -> None:
    recorder = TorchProfiler(tmp_path)
    recorder.start()
    torch.ones(3).add_(1)
    recorder.stop()
    events = json.loads((tmp_path / FILE).read_text(), parse_float=Decimal)["traceEvents"]
    clocks = [
        (int(match[1]), round(event["ts"] * 1000))
        for event in events
        if (match := re.fullmatch(r"unstall\.clock#(\d+)", event.get("name", ""))) and event["cat"] == "user_annotation"
    ]
    assert len(clocks) == 20  # half of them at the start, half at the end
    profile = read_profile(tmp_path)
    closest = max(ours - theirs for ours, theirs in clocks)
    assert closest <= profile.zero_ns < closest + 20_000
    assert not any("unstall.clock#" in text for text in profile.events)
    added = next(json.loads(text, parse_float=Decimal) for text in profile.events if '"aten::add_"' in text)
    calls = profile.calls[profile.calls["start"] == profile.zero_ns + round(added["ts"] * 1000)]
    assert calls["thread"].tolist() == [threading.get_native_id()]
    assert calls["end"][0] == calls["start"][0] + round(added["dur"] * 1000)
    before, after = min(ours for ours, _ in clocks), max(ours for ours, _ in clocks)
    assert before < calls["start"][0] < calls["end"][0] < after


def test_a_profiler_that_is_in_use_is_said_so(tmp_path: Path) -> None:
    recorder = TorchProfiler(tmp_path)
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.raises(UnstallError, match=r"torch\.profiler is on already: "),
    ):
        recorder.start()
    assert not device.profiler_is_on()


@pytest.mark.parametrize("steps", [None, 1])
def test_a_profiler_that_warms_up_as_a_block_begins_goes_first(steps: int | None) -> None:
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=1, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, schedule=schedule, acc_events=True) as profile:
        with record(steps=steps, recorder="torch", lines="none") as recording:
            for _ in range(9):
                time.sleep(0.1)
                step()
            profile.step()
        profile.step()
        torch.ones(3).add(1)
        profile.step()
    assert "aten::add" in [each.key for each in profile.key_averages()]
    with pytest.raises(UnstallError, match="nothing was recorded"):
        recording.timeline()


@pytest.mark.parametrize("steps", [None, 2])
def test_the_programs_own_profiler_has_all_of_its_profile(tmp_path: Path, steps: int | None) -> None:
    weight = torch.ones(3)
    with record(steps=steps, recorder="torch", lines="none") as recording:
        for _ in range(_STEPS - 1):
            weight.mul(2)
            step()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            weight.add(1)
        weight.sub(1)
    names = ("aten::mul", "aten::add", "aten::sub")
    assert {each.key: each.count for each in profile.key_averages() if each.key in names} == {"aten::add": 1}
    recording.save(tmp_path / "trace.json")
    timeline = unstall.load(tmp_path / "trace.json")
    assert "the recording ended as the program's own torch.profiler began" in timeline.meta.notes
    assert {*names} & {*timeline.strings} == {"aten::mul"}


@pytest.mark.python(below=(3, 12))
def test_a_profiler_of_python_that_was_begun_meanwhile_goes_on(tmp_path: Path) -> None:
    def called() -> None:
        pass

    def count(frame: FrameType, event: str, _: object) -> None:
        counted[0] += event == "call" and frame.f_code is called.__code__

    counted = [0]
    recorder = TorchProfiler(tmp_path, stacks=True)
    recorder.start()
    sys.setprofile(count)
    try:
        recorder.stop()
        called()
        assert sys.getprofile() is count
    finally:
        sys.setprofile(None)
    recorder = TorchProfiler(tmp_path, stacks=True)
    recorder.start()
    with cProfile.Profile() as profile:
        recorder.stop()
        called()
    assert [entry.callcount for entry in profile.getstats() if entry.code is called.__code__] == counted == [1]


@pytest.mark.parametrize("stacks", [False, True])
def test_nothing_is_left_of_a_profile_in_python(tmp_path: Path, stacks: bool) -> None:
    recorder = TorchProfiler(tmp_path, stacks=stacks)
    recorder.start()
    recorder.stop()
    assert sys.getprofile() is None


def test_where_torch_left_no_profile_both_reasons_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        TraceError, match=r"torch's profiler left no profile\. It .*: the program ended .* disk of .* full"
    ):
        read_profile(tmp_path)


def test_a_forked_child_is_not_profiled_and_its_parent_still_is() -> None:
    reader, writer = os.pipe()
    with record(recorder="torch") as recording:
        child = os.fork()
        if child == 0:
            try:
                before = _resident_bytes()
                for _ in range(30_000):
                    torch.ones(4)
                told = f"{sys.getprofile()} {_resident_bytes() - before < 10 << 20}"
                os.write(writer, told.encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        _forward(torch.ones(4, 4), 3)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == "None True"
    assert len(_places(recording.timeline(), "aten::sinh")) == 3


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_BEFORE = "import torch, torch._dynamo"  # which torch's profiler imports
_FORKS = """
import os, sys, torch
from unstall import record
def fork():
    if os.fork() == 0:
        print("child", flush=False)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
with record(recorder="torch") as run:
    torch.ones(4) + 1
    "{0}" == "within" and fork()
"{0}" == "after" and fork()
"""
_TRAINS = """
import sys, threading, time
import torch
import unstall
from unstall.guest import active
from unstall.recording.child import begin
from unstall.recording.settings import Settings

begin(Settings(sys.argv[1], recorder="torch", warmup=1, steps=3))
recording = active.current()

def train(steps):
    for _ in range(steps):
        torch.ones(3).mul(2)
        time.sleep(0.01)
        unstall.step()

def records():
    return recording.phase.value == "recording"
"""

_ON_THREADS = {
    "each on a thread of its own": """
for _ in range(100):
    thread = threading.Thread(target=train, args=(2,))
    thread.start()
    thread.join()
""",
    "on a daemon that the program leaves behind": """
recording._settings = Settings(sys.argv[1], recorder="torch", steps=10**6)
def train_on():
    while recording.phase.value != "over":
        train(1)
    threading.Event().wait()  # torch itself may abort where a daemon is within it at exit

threading.Thread(target=train_on, daemon=True).start()
while not records():
    time.sleep(0.001)
""",
    "beside a thread that profiles": """
def profile():
    with torch.profiler.profile() as profiled:
        torch.ones(3).add(1)
    assert "aten::add" in [each.key for each in profiled.key_averages()]

while not records():
    train(1)
thread = threading.Thread(target=profile)
thread.start()
while thread.is_alive():
    train(1)
""",
}

_PROGRAMS = {where: _FORKS.format(where) for where in ("within", "after")} | {
    where: f"{_TRAINS}{steps}\nprint('ends', flush=True)" for where, steps in _ON_THREADS.items()
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[subprocess.CompletedProcess[str], Path]]:
    """What each program did, and the folder that it was given."""
    folder = tmp_path_factory.mktemp("programs")
    each = forked(_BEFORE, list(_PROGRAMS.values()), folder)
    return {name: (each[number], folder / f"{number}") for number, name in enumerate(_PROGRAMS)}


@pytest.mark.parametrize("where", ["within", "after"])
def test_a_forked_child_exits_as_it_would(
    done: dict[str, tuple[subprocess.CompletedProcess[str], Path]], where: str
) -> None:
    program, _ = done[where]
    assert (program.returncode, program.stdout) == (0, "child\n7\n"), program.stderr


@pytest.mark.parametrize("where", _ON_THREADS)
def test_torchs_profile_ends_on_the_thread_that_it_began_on(
    done: dict[str, tuple[subprocess.CompletedProcess[str], Path]], where: str
) -> None:
    program, folder = done[where]
    assert (program.returncode, program.stdout) == (0, "ends\n"), program.stderr
    events = {event["event"]: event for event in read(folder)}
    assert "failed" not in events
    assert events["recorded"]["steps"] >= 0
    assert (folder / FILE).exists()
