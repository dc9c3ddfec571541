"""`--stop`: a recorded program ends after what was recorded, as by sys.exit() in its main thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording.recorders import Driven

from unstall.guest import active
from unstall.recording.session import Phase

_ENDS = """\
import atexit, sys, threading, time
from unstall.guest.ending import end_program

atexit.register(print, "at exit")

def steps():
    end_program()
    while True:
        time.sleep(0.001)

try:
    if sys.argv[1] == "main":
        steps()
    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    time.sleep(5)
finally:
    print("cleaned up")
"""


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_program_that_is_ended_cleans_up_and_succeeds(thread: str) -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS, thread], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleaned up\nat exit\n", "")


@pytest.mark.parametrize(("stop", "why", "ends"), [(True, "done", 1), (False, "done", 0), (True, "exit", 0)])
def test_a_session_ends_the_program_once_it_is_done_and_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: bool, why: str, ends: int
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("unstall.recording.session.end_program", lambda **_: asked.append("end"))
    run = Driven(tmp_path, None, None, warmup=1, steps=1, stop=stop)
    run.session.begin()
    run.steps(1 + 3 + 2, took_ms=100)
    assert asked == []
    if why == "done":
        run.steps(1 + 3 + 1, took_ms=100)
    else:
        run.session.end(why)
    assert (run.session.phase, len(asked), active.current()) == (Phase.OVER, ends, None)


_TRAINS = """\
import atexit, torch
atexit.register(print, "at exit")
weight = torch.ones(4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(100_000):
    weight.sum().backward()
    optimizer.step()
print("all steps")
"""
_CALLS = """\
import unstall, torch
for number in range(100_000):
    torch.ones(4, device="cuda").add(1)
    {}
print("all steps")
"""


@pytest.mark.parametrize(
    ("program", "options", "printed", "said"),
    [
        (_TRAINS, "--steps 2", "at exit\n", "--stop ended the program after 6 steps"),
        (_CALLS.format("unstall.step()"), "--after 0.001 --for 0.001", "", "--stop ended the program after "),
        (_CALLS.format("if number > 20: break"), "", "all steps\n", "--stop did not end the program: "),
    ],
)
def test_a_program_on_a_virtual_gpu_ends_after_what_was_asked_for(
    tmp_path: Path, program: str, options: str, printed: str, said: str
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--stop", *options.split(), "train.py"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, printed), done.stderr
    assert f"unstall: {said}" in done.stderr
    assert (tmp_path / "train.trace.json.gz").exists()
