"""Hangs from the command line to the report, and `unstall blame PID`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from unstall.blaming.hangs.processes import folder_of
from unstall.blaming.hangs.watch import time_out_s
from unstall.cli._blame_options import parse_hang_after
from unstall.errors import UsageError

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="programs are launched on Linux alone"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver of these tests is built by gcc"),
]

HOST = """import threading


def work():
    threading.Event().wait()  # the hang


work()
"""
SPINS = """import threading, torch
torch.launch(b"add")
torch.launch(b"spin")  # the hang
torch.driver.fake_run(7, 1)
torch.driver.fake_hang(7)
threading.Event().wait()
"""
DONE = SPINS.replace("torch.driver.fake_hang(7)", "pass")
GOES_ON = """import time, torch
torch.launch(b"add")
time.sleep(4)
torch.launch(b"mul")
time.sleep(0.2)
"""
PICKS_UP_SIGTERM = """import signal, threading
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Event().wait()
"""


COMPUTES_FIRST = """import time
until = time.monotonic() + 5
while time.monotonic() < until:
    pass
"""
COMPUTES_AFTER_WORK = DONE.replace("threading.Event().wait()\n", COMPUTES_FIRST)
WORKS_FOR_A_WHILE = """import time, torch
for _ in range(10):
    torch.launch(b"add")
    time.sleep(0.5)
"""


def start(home: Path, fake: Path, program: str, *options: str) -> subprocess.Popen[str]:
    path = home / "program.py"
    path.write_text(program)
    return subprocess.Popen(
        [sys.executable, "-m", "unstall", "run", "--blame", *options, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake), "CUDA_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "300"},
    )


def hung(home: Path, fake: Path, program: str, *options: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a program that is ended after two seconds without progress."""
    running = start(home, fake, program, "--hang-after", "2s", *options)
    out, err = running.communicate(timeout=60)
    return running.returncode, out, " ".join(err.split())


@pytest.mark.slow
def test_a_host_that_waits_is_told_by_its_line_and_ended(home: Path, fake: Path) -> None:
    code, _, told = hung(home, fake, HOST, "--end-hung")
    assert code == 124
    assert f"The host is at {home}/program.py:5. The program is ended." in told


@pytest.mark.slow
def test_a_kernel_that_spins_is_told_by_its_line_and_name(home: Path, fake: Path) -> None:
    code, out, err = hung(home, fake, SPINS, "--end-hung", "--format", "json")
    (process,) = json.loads(out)["hang"]["processes"]
    (stream,) = process["streams"]
    assert code == 124
    assert f"is at kernel spin of {home}/program.py:3" in err
    assert (stream["work"]["where"]["line"], stream["work"]["work"], stream["is_sure"]) == (3, ["spin"], True)
    assert process["at"]["line"] == 6


@pytest.mark.slow
def test_a_process_that_the_program_starts_is_told_too(home: Path, fake: Path) -> None:
    (home / "inner.py").write_text(SPINS)
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, {str(home / 'inner.py')!r}])\n"
    _, out, told = hung(home, fake, program, "--end-hung", "--format", "json")
    outer, inner = json.loads(out)["hang"]["processes"]
    assert f"is at kernel spin of {home}/inner.py:3" in told
    assert (outer["at"]["line"], inner["streams"][0]["work"]["where"]["line"]) == (2, 3)


@pytest.mark.slow
def test_if_all_work_is_done_the_host_is_told(home: Path, fake: Path) -> None:
    _, _, told = hung(home, fake, DONE, "--end-hung")
    assert f", and all of its work is done. The host is at {home}/program.py:6. The program is ended." in told


@pytest.mark.slow
def test_a_program_that_goes_on_is_left_as_it_is_and_told_to_move_again(home: Path, fake: Path) -> None:
    code, _, told = hung(home, fake, GOES_ON)
    assert code == 0
    assert told.count("The program has put no work on the device for") == 1
    assert re.search(r"the program moves again, after [3-5] s", told)


@pytest.mark.slow
def test_a_program_that_computes_before_its_first_work_does_not_hang(home: Path, fake: Path) -> None:
    code, _, told = hung(home, fake, COMPUTES_FIRST, "--end-hung")
    assert (code, "hangs" in told) == (0, False)


@pytest.mark.slow
def test_a_program_that_computes_once_its_work_is_done_does_not_hang(home: Path, fake: Path) -> None:
    code, _, told = hung(home, fake, COMPUTES_AFTER_WORK, "--end-hung")
    assert (code, "all of its work is done" in told) == (0, False)


@pytest.mark.slow
def test_a_program_that_waits_for_a_child_that_works_does_not_hang(home: Path, fake: Path) -> None:
    (home / "inner.py").write_text(WORKS_FOR_A_WHILE)
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, {str(home / 'inner.py')!r}])\n"
    code, _, told = hung(home, fake, program, "--end-hung")
    assert (code, "hangs" in told) == (0, False)


@pytest.mark.slow
def test_never_is_no_time_out(home: Path, fake: Path) -> None:
    code, _, told = hung(home, fake, GOES_ON, "--hang-after", "never")
    assert (code, "hangs" in told) == (0, False)


@pytest.mark.parametrize(
    ("after_s", "longest_s", "told"),
    [(None, 1.0, 60.0), (None, 10.0, 200.0), (None, 1000.0, 1800.0), (5.0, 1000.0, 5.0)],
)
def test_the_time_out_is_the_users_or_20_times_the_longest_pause(
    after_s: float | None, longest_s: float, told: float
) -> None:
    assert time_out_s(after_s, longest_s) == told


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60.0), ("2m", 120.0), ("90", 90.0), ("0.5h", 1800.0)])
def test_times_are_seconds_minutes_or_hours(text: str, seconds: float) -> None:
    assert parse_hang_after(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "1d", "-1s", "soon"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        parse_hang_after(text)


@pytest.mark.slow
def test_a_program_that_ignores_sigterm_is_killed(home: Path, fake: Path) -> None:
    assert hung(home, fake, PICKS_UP_SIGTERM, "--end-hung")[0] == 124


@pytest.mark.slow
def test_a_hang_is_in_the_files_before_the_program_ends(home: Path, fake: Path, tmp_path: Path) -> None:
    running = start(home, fake, HOST, "--hang-after", "2s", "-o", str(tmp_path / "hang.json"))
    until = time.monotonic() + 30
    while not (tmp_path / "hang.json").exists() and time.monotonic() < until:
        time.sleep(0.1)
    told = json.loads((tmp_path / "hang.json").read_text())
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert (told["hang"]["processes"][0]["at"]["line"], told["hang"]["after_ns"]) == (5, 2_000_000_000)


@pytest.mark.slow
def test_a_run_that_is_ended_while_it_reports_leaves_nothing(home: Path, fake: Path, tmp_path: Path) -> None:
    running = start(home, fake, HOST, "--hang-after", "2s", "-o", str(tmp_path / "hang.json"))
    until = time.monotonic() + 30
    while not (tmp_path / "hang.json").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process = json.loads((tmp_path / "hang.json").read_text())["hang"]["processes"][0]["pid"]
    folder = folder_of(process)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert folder is not None
    assert not folder.exists()


def asked(pid: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unstall", "blame", str(pid), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_a_program_is_asked_from_outside_by_its_number_or_that_of_its_run(home: Path, fake: Path) -> None:
    running = start(home, fake, SPINS)
    try:
        until = time.monotonic() + 30
        lines: list[Any] = []
        while not lines and time.monotonic() < until:
            time.sleep(0.5)
            done = asked(running.pid, "--json")
            lines = json.loads(done.stdout)["hang"]["processes"][0]["streams"] if not done.returncode else []
        assert lines, done.stderr
        process = json.loads(done.stdout)["hang"]["processes"][0]
        again = json.loads(asked(process["pid"], "--json").stdout)["hang"]["processes"][0]
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert lines[0]["work"]["where"]["line"] == 3
    assert (again["streams"], again["state"]) == (process["streams"], "waits")


def test_a_process_that_does_not_run_with_blame_is_refused() -> None:
    done = asked(os.getpid())
    assert (done.returncode, f"process {os.getpid()} does not run with" in done.stderr) == (2, True)


@pytest.mark.parametrize("options", [["--hang-after", "60s"], ["--end-hung"]])
def test_options_of_hangs_need_blame(options: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unstall", "run", *options, __file__], capture_output=True, text=True, check=False
    )
    assert (done.returncode, f"{options[0]} needs --blame" in done.stderr) == (2, True)


def test_a_virtual_gpu_is_not_watched() -> None:
    command = [sys.executable, "-m", "unstall", "run", "--gpu", "h200", "--blame", "--hang-after", "60s", __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "--hang-after watches a real GPU" in done.stderr) == (2, True)
