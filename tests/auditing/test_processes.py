"""Commands side by side: their time is limited, and no process of theirs is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from unstall.auditing.processes import Job, run_side_by_side

# Starts a child that sleeps, and prints its number.
_WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
"""
_SLEEPS_WITH_CHILD = f"{_WITH_CHILD}time.sleep(60)"


def _job(folder: Path, code: str, name: str = "log") -> Job:
    return Job([sys.executable, "-c", code], folder / name, {})


def _is_gone(number: int) -> bool:
    """Whether the process ends soon: the kernel takes a moment to kill it."""
    for _ in range(250):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def _until_written(log: Path) -> int:
    """The number of the child, once it is there."""
    for _ in range(500):
        if log.exists() and (text := log.read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("it never started")


def test_each_job_ends_with_its_exit_code_and_all_that_it_printed(tmp_path: Path) -> None:
    codes = [f"import sys; print('out'); sys.exit({number})" for number in range(3)]
    jobs = [_job(tmp_path, code, f"{number}") for number, code in enumerate(codes)]
    assert {index: ended.code for index, ended in run_side_by_side(jobs, 2, 30)} == {0: 0, 1: 1, 2: 2}
    assert (tmp_path / "1").read_text() == "out\n"


def test_no_more_than_so_many_run_at_once(tmp_path: Path) -> None:
    code = f"""
import os, time
from pathlib import Path
mine = Path({str(tmp_path)!r}) / f"running-{{os.getpid()}}"
mine.touch()
time.sleep(0.2)
print(len(list(mine.parent.glob("running-*"))))
mine.unlink()
"""
    jobs = [_job(tmp_path, code, f"{number}") for number in range(5)]
    list(run_side_by_side(jobs, 2, 30))
    assert max(int((tmp_path / f"{number}").read_text()) for number in range(5)) == 2


def test_a_job_whose_time_is_over_is_killed_with_its_children(tmp_path: Path) -> None:
    job = _job(tmp_path, _SLEEPS_WITH_CHILD)
    ((_, ended),) = run_side_by_side([job], 1, 2.0)
    assert ended.code is None
    assert 2.0 <= ended.took_s < 20.0
    assert _is_gone(int(job.log.read_text()))


def test_a_child_that_a_job_leaves_behind_is_killed(tmp_path: Path) -> None:
    job = _job(tmp_path, _WITH_CHILD)
    ((_, ended),) = run_side_by_side([job], 1, 30)
    assert ended.code == 0
    assert _is_gone(int(job.log.read_text()))


def test_leaving_the_iteration_kills_all_that_run(tmp_path: Path) -> None:
    jobs = [_job(tmp_path, _SLEEPS_WITH_CHILD, "slow"), _job(tmp_path, "import time; time.sleep(1)")]
    with closing(run_side_by_side(jobs, 2, 30)) as ended:
        assert next(ended)[0] == 1
        child = _until_written(jobs[0].log)
    assert _is_gone(child)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_all_that_run(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import sys
from pathlib import Path
from unstall.auditing.processes import Job, run_side_by_side
list(run_side_by_side([Job([sys.executable, "-c", {_SLEEPS_WITH_CHILD!r}], Path("log"), {{}})], 1, 60))
"""
    auditing = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    child = _until_written(tmp_path / "log")
    os.kill(auditing.pid, number)
    assert auditing.wait(30) != 0
    assert _is_gone(child)
