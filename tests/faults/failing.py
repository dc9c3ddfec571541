"""Commands whose writes below a folder fail, one at a time, or that are killed within one."""

from __future__ import annotations

import errno
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_SOURCE = Path(__file__).with_name("failing.c")
_WARM = Path(__file__).with_name("warm.py")
_ASKED, _TOLD = struct.Struct("3i"), struct.Struct("2i")  # the state of failing.c
_TEXT_BYTES = 500
LONGEST_S = 20
MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class Fault:
    """How a call fails. `error` is "ENOSPC", "EIO" or "SIGKILL". If `all`, each later call fails, too."""

    error: str
    all: bool = False

    def __str__(self) -> str:
        return f"{self.error}{' from then on' if self.all else ''}"


FULL: Final = Fault("ENOSPC", all=True)
NO_ROOM, BROKEN, KILLED = Fault("ENOSPC"), Fault("EIO"), Fault("SIGKILL")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: exit code or minus a signal, and what it printed."""

    code: int
    out: str
    err: str


def library(folder: Path) -> Path:
    """Compiles the library that makes calls fail."""
    made = folder / "failing.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o", made, _SOURCE, "-ldl"], check=True)
    return made


class Failing:
    """Runs commands in the folder `below`, and in folders of their own for temporary files and the cache.

    Attributes:
        below: What is written below this folder may fail.
        environment: The environment of such commands.
    """

    def __init__(self, library: Path, below: Path) -> None:
        self.below = below
        state = below.with_name(f"{below.name}.state")
        size = _ASKED.size + _TOLD.size + _TEXT_BYTES
        state.write_bytes(bytes(size))
        with state.open("r+b") as file:
            self._state = mmap.mmap(file.fileno(), size)
        self.temporary, self.cache = below / "temporary", below / "cache"
        for folder in (below, self.temporary, self.cache):
            folder.mkdir()
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAIL_BELOW": str(below),
            "FAIL_STATE": str(state),
            "TMPDIR": str(self.temporary),
        }

    def arm(self, at: int, fault: Fault) -> None:
        """Makes call number `at` from now on fail. 0: none."""
        number = 0 if fault.error == "SIGKILL" else getattr(errno, fault.error)
        self._state[:] = _ASKED.pack(at, number, fault.all) + bytes(_TOLD.size + _TEXT_BYTES)

    @property
    def calls(self) -> int:
        """How many calls there were that could fail."""
        return int(_TOLD.unpack_from(self._state, _ASKED.size)[0])

    @property
    def reached(self) -> str:
        """What failed first, such as "rename /out.json"; "" if nothing failed."""
        text = self._state[_ASKED.size + _TOLD.size :].rstrip(b"\0").decode()
        assert bool(text) == bool(_TOLD.unpack_from(self._state, _ASKED.size)[1])
        return text

    def run(self, *words: str, **environment: str) -> Ended:
        """Runs `unstall WORDS` in a process of its own. It must end within 20 s, and take less than 2 GB."""
        return self.start(*words, **environment).ended()

    def start(self, *words: str, **environment: str) -> Started:
        return Started([sys.executable, "-m", "unstall", *words], self.below, {**self.environment, **environment})


class Started:
    """A command that runs, as the leader of a session of its own."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._said = [folder.with_name(f"{folder.name}.{name}") for name in ("out", "err")]
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def ended(self) -> Ended:
        """Waits until the command has ended, at most 20 s."""
        code = waited(self.process.pid)
        self.process.returncode = code
        out, err = (path.read_text(errors="replace") for path in self._said)
        assert "Traceback (most" not in err, err
        return Ended(code, out, err)


def waited(pid: int) -> int:
    """Waits until a child has ended, and returns its exit code, or minus its signal. Fails, and ends its session, if it
    takes more than 20 s. Fails if it or a child of its had more than 2 GB of memory.
    """
    ends = time.monotonic() + LONGEST_S
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        if done:
            assert used.ru_maxrss << 10 < MOST_BYTES
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > ends:
            end_session(pid)
            os.waitpid(pid, 0)
            raise AssertionError(f"it ran for more than {LONGEST_S} s")
        time.sleep(0.002)


def end_session(leader: int) -> None:
    """Kills each process of a session that this process's `Started` began, and that is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                os.kill(int(stat.parent.name), signal.SIGKILL)


class Warm:
    """Runs Python programs in processes that are forked from one that has imported what takes time."""

    def __init__(self, failing: Failing, imports: str) -> None:
        self.failing = failing
        self._server = subprocess.Popen(
            [sys.executable, str(_WARM), imports],
            env={**failing.environment, "XDG_CACHE_HOME": str(failing.cache), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *args: str) -> Ended:
        """Runs a program with these arguments in the folder."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        said = [self.failing.below.with_name(f"warm.{name}") for name in ("out", "err")]
        asked: dict[str, Any] = {"program": program, "args": args, "folder": str(self.failing.below)}
        self._server.stdin.write(json.dumps({**asked, "said": [*map(str, said)]}) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the process that forks has ended"
        code = json.loads(answer)
        out, err = (path.read_text(errors="replace") for path in said)
        assert not isinstance(code, str), f"{code}\n{err}"
        assert "Traceback (most" not in err, err
        return Ended(code, out, err)

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(LONGEST_S)
        self._server.stdout.close()


def files(folder: Path) -> dict[str, bytes]:
    """Returns what is in the files below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
