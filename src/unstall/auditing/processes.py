"""Runs commands side by side, each in a process group of its own and for a limited time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from unstall.auditing import left_behind

_POLL_S = 0.05
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Job:
    """A command to run. `log` is the file for its output. `variables` are environment variables
    that it gets in addition to those of this process.
    """

    command: Sequence[str]
    log: Path
    variables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: The exit code. Negative if a signal killed the command, None if the command reached
            its time limit.
        took_s: How many seconds the command ran.
    """

    code: int | None
    took_s: float


def run_side_by_side(jobs: Sequence[Job], at_once: int, limit_s: float) -> Generator[tuple[int, Ended]]:
    """Runs commands, at most `at_once` at the same time and each for at most `limit_s` seconds.
    Yields `(index of the job, how it ended)` each time a command has ended.

    Kills the process group of a command when the command has ended or has reached its time limit.
    Kills all process groups if the caller stops the iteration, for example by Ctrl-C or SIGTERM, or
    if this process is killed.
    """
    running: dict[int, tuple[subprocess.Popen[bytes], float]] = {}
    waiting = iter(range(len(jobs)))
    try:
        with _signals_end_the_iteration(), _pipe_to_killer() as pipe:
            while True:
                while len(running) < at_once and (index := next(waiting, None)) is not None:
                    running[index] = _started(jobs[index], pipe), time.monotonic()
                if not running:
                    return
                for index, (process, began) in list(running.items()):
                    took_s = time.monotonic() - began
                    by_itself = _has_ended(process)
                    if by_itself or took_s > limit_s:
                        code = _ended(process, pipe)
                        del running[index]
                        yield index, Ended(code if by_itself else None, took_s)
                time.sleep(_POLL_S)
    finally:
        for process, _ in running.values():
            process.wait()


@contextmanager
def _pipe_to_killer() -> Iterator[IO[bytes]]:
    """Yields a pipe to a helper process. When this process has ended, in whatever way, the helper kills the jobs that
    still run."""
    command = [sys.executable, "-I", "-S", left_behind.__file__]
    killer = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert killer.stdin is not None
    try:
        yield killer.stdin
    finally:
        killer.stdin.close()
        killer.wait()


def _started(job: Job, pipe: IO[bytes]) -> subprocess.Popen[bytes]:
    """Starts a job. Its process writes the number of its process group into `pipe`, and only then runs the command."""
    with job.log.open("wb") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", 'echo "$$" >&0; exec "$@" </dev/null', "sh", *job.command],
            stdin=pipe,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **job.variables},
            start_new_session=True,
        )


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Returns whether a process has ended. Does not reap the process: as long as the process is not reaped, no new
    process group can get its number (PID)."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ended(process: subprocess.Popen[bytes], pipe: IO[bytes]) -> int:
    """Kills each process that still runs in the process group of a job. Returns the exit code of the job."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(BrokenPipeError):
        os.write(pipe.fileno(), b"%d\n" % -process.pid)  # before another group can get the number
    return process.wait()


@contextmanager
def _signals_end_the_iteration() -> Iterator[None]:
    """During the block, SIGTERM and SIGHUP raise an exception in this process, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    ending = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ending:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)
