"""`unstall run --gpu` is ended by signals, at any moment: nothing is lost that was there, and nothing hangs.

Each test prints its seed. UNSTALL_SEED sets it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.commands import random_of_seed

from unstall.read import load
from unstall.recording.left import is_running

pytestmark = pytest.mark.slow
pytest.importorskip("torch")

_LONGEST_S = 120
_PROGRAM = """\
import os, signal, sys, time, torch
x = torch.zeros(8, device="cuda")
for _ in range(10):
    x.add_(1)
torch.cuda.synchronize()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
print("ready", os.getpid(), flush=True)
"""
_HOW_IT_GOES_ON = {
    "busy": "while True: pass\n",
    "waiting": "import select\nwhile True: select.select([], [], [], 60)\n",
    "with threads": "import threading\nthreading.Thread(target=threading.Event().wait).start()\nsys.stdin.read()\n",
}


class _Run:
    """A run in a folder, with a folder for temporary files of its own."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.temporary = folder, folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        (folder / "train.py").write_text(program)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--warmup", "0", "train.py"]
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def program(self) -> int:
        """Waits until the program has used the GPU, and returns its process."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline().split()[1])

    def ended(self) -> tuple[int, str]:
        """Returns the exit code and stderr."""
        said = self.process.communicate(timeout=_LONGEST_S)[1]
        return self.process.returncode, said

    def recover(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "unstall", "recover", *args],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
        )


def _gone(pid: int) -> None:
    ends = time.monotonic() + _LONGEST_S
    while is_running(pid, None):
        assert time.monotonic() < ends, f"{pid} still runs"
        time.sleep(0.05)


@pytest.mark.parametrize("goes_on", _HOW_IT_GOES_ON)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("whom", ["program", "supervisor"])
def test_a_signal_that_ends_the_program_leaves_its_trace(tmp_path: Path, goes_on: str, number: int, whom: str) -> None:
    run = _Run(tmp_path, _PROGRAM + _HOW_IT_GOES_ON[goes_on])
    program = run.program()
    os.kill(program if whom == "program" else run.process.pid, number)
    code, said = run.ended()
    assert code == -number
    assert "the trace is in train.trace.json.gz" in said
    assert len(load(tmp_path / "train.trace.json.gz").device) >= 10
    assert list(run.temporary.iterdir()) == []
    _gone(program)


@pytest.mark.parametrize("goes_on", _HOW_IT_GOES_ON)
def test_a_run_whose_supervisor_is_killed_is_recovered(tmp_path: Path, goes_on: str) -> None:
    run = _Run(tmp_path, _PROGRAM + _HOW_IT_GOES_ON[goes_on])
    program = run.program()
    run.process.kill()
    run.ended()
    _gone(program)
    (listed,) = run.recover().stdout.splitlines()
    assert "train.py" in listed
    assert run.recover(listed.split()[0], "kept.json").returncode == 0
    assert len(load(tmp_path / "kept.json").device) >= 10


def test_a_program_with_a_handler_of_its_own_is_left_to_it(tmp_path: Path) -> None:
    own = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))\n"
    checked = "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
    run = _Run(tmp_path, own + _PROGRAM.replace(checked, "") + _HOW_IT_GOES_ON["busy"])
    program = run.program()
    os.kill(program, signal.SIGTERM)
    code, said = run.ended()
    assert code == 7
    assert "the trace is in train.trace.json.gz" in said


def test_at_any_moment_there_is_something_to_recover_or_nothing(tmp_path: Path) -> None:
    moments = random_of_seed()
    began = time.monotonic()
    whole = _Run(tmp_path, _PROGRAM)
    whole.ended()
    lasts = time.monotonic() - began
    assert (tmp_path / "train.trace.json.gz").exists()
    for moment in sorted(moments.uniform(0, lasts) for _ in range(10)):
        folder = tmp_path / f"{moment:.3f}"
        folder.mkdir()
        run = _Run(folder, _PROGRAM)
        time.sleep(moment)
        run.process.send_signal(signal.SIGTERM)
        _code, said = run.ended()
        time.sleep(0.5)  # the program may still write
        for trace in folder.glob("*.json.gz"):  # it is whole, or only claimed
            assert not trace.stat().st_size or load(trace)
        listed = run.recover()
        assert listed.returncode == 0, listed.stderr
        for line in listed.stdout.splitlines():
            if "nothing was recorded" not in line:
                assert run.recover(line.split()[0], "kept.json").returncode == 0
                assert load(folder / "kept.json")
        assert not re.search("Traceback|Error", said), said
