"""Commands that end within 20 s, in less than 2 GB, in folders of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST_S = 20
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: exit code or minus a signal, and what it printed."""

    code: int
    out: str
    err: str


class Place:
    """A folder to run commands in, and folders in it for temporary files and for the cache.

    Attributes:
        environment: The environment of the commands. The cache is that of the user.
    """

    def __init__(self, below: Path) -> None:
        self.below = below
        self.temporary, self.cache = below / "temporary", below / "cache"
        for folder in (below, self.temporary, self.cache):
            folder.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def run(self, *words: str) -> Ended:
        """Runs `unstall WORDS`."""
        return self.start(*words).ended()

    def start(self, *words: str) -> Started:
        """Starts `unstall WORDS`."""
        return Started([sys.executable, "-m", "unstall", *words], self.below, self.environment)


class Started:
    """A command that runs, as the leader of a session of its own."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._said = [folder.with_name(f"{folder.name}.{name}") for name in ("out", "err")]
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def said(self) -> tuple[str, str]:
        """What it has printed so far, on stdout and on stderr."""
        out, err = (path.read_text(errors="replace") for path in self._said)
        return out, err

    @property
    def runs(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def ended(self) -> Ended:
        """Waits until the command has ended."""
        code = self._process.returncode = waited(self._process.pid)
        out, err = self.said
        assert "Traceback (most" not in err, err
        return Ended(code, out, err)

    def killed(self, moments: random.Random) -> None:
        """Ends the command by SIGKILL, alone or with all that it started. Waits until nothing of it is left."""
        leader = self._process.pid
        for pid in [leader] if moments.random() < 0.5 else _members(leader):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended()
        all_ended(leader)


def waited(pid: int) -> int:
    """Waits until a child has ended, and returns its exit code, or minus its signal.

    Fails, and ends its session, if it takes too long. Fails if it or a child of its had more than 2 GB of memory.
    """
    ends = _too_late()
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            assert used.ru_maxrss << 10 < MOST_BYTES
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            for each in _members(pid):
                os.kill(each, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"it ran for more than {LONGEST_S} s")
        time.sleep(0.002)


def all_ended(session: int) -> None:
    """Waits until nothing runs in a session whose leader has ended."""
    ends = _too_late()
    while left := _members(session):
        assert time.monotonic() < ends, left
        time.sleep(0.02)


def _too_late() -> float:
    """Returns the time in 20 s, or later if the machine has more to do than it has processors."""
    return time.monotonic() + LONGEST_S * max(1, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def _members(session: int) -> list[int]:
    """Returns the processes of a session that run."""
    return [pid for pid, fields in _processes() if int(fields[3]) == session and fields[0] not in "ZX"]


def _processes() -> Iterator[tuple[int, list[str]]]:
    """Yields each process, and the fields of its /proc/PID/stat from the third on."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(stat.parent.name), stat.read_text().rpartition(")")[2].split()


def until(holds: Callable[[], bool], started: Started) -> bool:
    """Waits until `holds()`. Returns whether it came so, before the command ended."""
    while not holds():
        if not started.runs:
            return holds()
        time.sleep(0.002)
    return True


def random_of_seed() -> random.Random:
    """Returns random numbers, and prints their seed. UNSTALL_SEED sets it."""
    seed = int(os.environ.get("UNSTALL_SEED", "0")) or random.randrange(1, 1 << 30)
    print("seed", seed)
    return random.Random(seed)


def files(folder: Path) -> dict[str, bytes]:
    """Returns what is in the files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
