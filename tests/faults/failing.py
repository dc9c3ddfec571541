"""Commands whose changes of a folder fail, one at a time, or that are killed within one."""

from __future__ import annotations

import errno
import json
import mmap
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faults.commands import LONGEST_S, Ended, Place

_SOURCE = Path(__file__).with_name("failing.c")
_WARM = Path(__file__).with_name("warm.py")
_ASKED, _TOLD = struct.Struct("3i"), struct.Struct("2i")  # the state of failing.c
_TEXT_BYTES = 500


@dataclass(frozen=True, slots=True)
class Fault:
    """How a call fails. `error` is "ENOSPC", "EIO" or "SIGKILL". If `all`, each later call fails, too."""

    error: str
    all: bool = False

    def __str__(self) -> str:
        return f"{self.error}{' from then on' if self.all else ''}"


FULL: Final = Fault("ENOSPC", all=True)
NO_ROOM: Final = Fault("ENOSPC")
BROKEN: Final = Fault("EIO")
KILLED: Final = Fault("SIGKILL")


def library(folder: Path) -> Path:
    """Compiles the library that makes calls fail."""
    made = folder / "failing.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-O1", "-o", made, _SOURCE, "-ldl"], check=True)
    return made


class Failing(Place):
    """Runs commands. What they write below the folder may fail."""

    def __init__(self, library: Path, below: Path) -> None:
        super().__init__(below)
        state = below.with_name(f"{below.name}.state")
        size = _ASKED.size + _TOLD.size + _TEXT_BYTES
        state.write_bytes(bytes(size))
        with state.open("r+b") as file:
            self._state = mmap.mmap(file.fileno(), size)
        self.environment |= {"LD_PRELOAD": str(library), "FAIL_BELOW": str(below), "FAIL_STATE": str(state)}

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


class Warm:
    """Runs Python programs in processes that are forked from one that has imported what takes time."""

    def __init__(self, failing: Failing, imports: str) -> None:
        self.failing = failing
        environment = {"XDG_CACHE_HOME": str(failing.cache), "PYTHONPATH": os.pathsep.join(sys.path)}
        self._server = subprocess.Popen(
            [sys.executable, str(_WARM), imports],
            env={**failing.environment, **environment},
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
        """Ends the process that forks."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(LONGEST_S)
        self._server.stdout.close()
