"""Signals of a launched program: who gets them, how often, and what becomes of the launcher."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching.launched import LAUNCHER, SOURCES, Done, launcher, write_program

from unstall.launching.launch import Exit, launch
from unstall.recording.settings import Settings


def test_signals_that_we_were_told_to_ignore_are_ignored_by_the_program(tmp_path: Path, folder: Path) -> None:
    program = write_program(
        tmp_path,
        """
        import os, signal
        print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGHUP))
        os.kill(os.getppid(), signal.SIGHUP)
        """,
    )
    quoted = " ".join(f"'{word}'" for word in [*launcher(folder), str(program)])
    done = Done.of(["sh", "-c", f"trap '' HUP INT; {quoted}; exit $?"], tmp_path)
    assert (done.code, done.out, done.err) == (0, "1 1\n", "")


def test_how_a_program_ends_is_known_where_we_were_told_to_ignore_our_children(tmp_path: Path, folder: Path) -> None:
    source = "import signal, sys; print(signal.getsignal(signal.SIGCHLD)); sys.exit(5)"
    started = [*launcher(folder), str(write_program(tmp_path, source))]
    ignoring = f"from signal import *; signal(SIGCHLD, SIG_IGN); import os; os.execv({started[0]!r}, {started!r})"
    done = Done.of([sys.executable, "-c", ignoring], tmp_path)
    assert (done.code, done.out, done.err) == (5, "1\n", "")


def test_signals_sent_to_the_launcher_reach_the_program_once(tmp_path: Path, folder: Path) -> None:
    program = write_program(
        tmp_path,
        """
        import signal, sys, time
        sent = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
        for number in sent:
            signal.signal(number, lambda number, frame: print(number, flush=True))
        print("ready", flush=True)
        while True:
            time.sleep(9)
        """,
    )
    process = subprocess.Popen([*launcher(folder), str(program)], stdout=subprocess.PIPE, text=True)
    with process, process.stdout:  # type: ignore[union-attr]
        lines = iter(process.stdout)  # type: ignore[arg-type]
        assert next(lines) == "ready\n"
        sent = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
        got = []
        for number in sent:
            process.send_signal(number)
            got.append(int(next(lines)))
        process.terminate()
        assert list(lines) == []
        assert process.wait() == -signal.SIGTERM
    assert got == sent


def test_ctrl_c_in_a_terminal_reaches_the_program_once_and_it_decides(tmp_path: Path, folder: Path) -> None:
    program = write_program(
        tmp_path,
        """
        import signal, sys, time
        caught = []
        signal.signal(signal.SIGINT, lambda *_: caught.append(1))
        print("ready", flush=True)
        while not caught:
            time.sleep(0.02)
        time.sleep(0.3)
        sys.exit(40 + len(caught))
        """,
    )
    terminal, ours = pty.openpty()
    in_its_session = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR))\n" + LAUNCHER
    process = subprocess.Popen(
        [sys.executable, "-c", in_its_session, SOURCES, str(folder), str(program)],
        stdin=ours,
        stdout=ours,
        stderr=ours,
        start_new_session=True,
    )
    os.close(ours)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 100)
    os.write(terminal, b"\x03")
    assert process.wait(timeout=30) == 41
    os.close(terminal)


def test_a_program_that_signals_its_process_group_gets_that_once(tmp_path: Path, folder: Path) -> None:
    program = write_program(
        tmp_path,
        """
        import os, signal, sys, time
        caught = []
        signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        os.kill(os.getppid(), signal.SIGSTOP)  # so that what it forwards comes after this has been handled
        os.killpg(0, signal.SIGUSR1)
        time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGCONT)
        time.sleep(0.5)
        sys.exit(40 + len(caught))
        """,
    )
    assert subprocess.run([*launcher(folder), str(program)], process_group=0).returncode == 41


def test_a_stopped_job_goes_on(tmp_path: Path, folder: Path) -> None:
    program = write_program(tmp_path, "import os; print(os.getpid(), flush=True); print(input())")
    process = subprocess.Popen(
        [*launcher(folder), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        pid = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        _wait_for_state(pid, "T")
        os.killpg(process.pid, signal.SIGCONT)
        assert process.communicate("on\n", timeout=30)[0] == "on\n"
    assert process.returncode == 0


def test_a_program_dies_with_its_launcher(tmp_path: Path, folder: Path) -> None:
    program = write_program(tmp_path, "import time; print('ready', flush=True); time.sleep(60)")
    process = subprocess.Popen([*launcher(folder), str(program)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == ""  # comes when nobody holds the other end any more
    assert process.returncode == -9


def test_a_python_that_a_wrapper_starts_is_not_taken_for_one_whose_launcher_died(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(f"#!/bin/sh\n'{sys.executable}' \"$@\"\nexit $?\n")
    wrapper.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(wrapper))
    assert launch(["-c", "raise SystemExit(4)"], "unstall.recording.child", Settings(str(folder)).to_json()) == Exit(4)


def test_a_signals_ending_is_told_as_a_shell_tells_it(folder: Path) -> None:
    program = ["-c", "import os; os.kill(os.getpid(), 9)"]
    assert launch(program, "unstall.recording.child", Settings(str(folder)).to_json()) == Exit(137, signal=9)


def test_launching_leaves_our_own_signals_as_they_were(folder: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    launch(["-c", ""], "unstall.recording.child", Settings(str(folder)).to_json())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def _wait_for_state(pid: int, state: str) -> None:
    """Return once Linux says that the process is in that state."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        pass
