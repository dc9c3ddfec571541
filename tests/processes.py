"""Commands in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def chromium() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def succeeded(
    command: Sequence[str], *, timeout: int = 600, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it printed, once it has ended with exit code 0 within so many seconds."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd, env=env)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-4000:]}"
    return done


_FORKING = """\
import os, sys
folder, before, *programs = sys.argv[1:]
exec(before)
for number, program in enumerate(programs):
    if os.fork() == 0:
        break
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
else:
    sys.exit()
sys.argv[1:] = [f"{folder}/{number}"]
for descriptor, name in (1, "stdout"), (2, "stderr"):
    os.dup2(os.open(f"{sys.argv[1]}.{name}", os.O_CREAT | os.O_WRONLY), descriptor)
exec(program)
"""


def forked(before: str, programs: Sequence[str], folder: Path) -> list[subprocess.CompletedProcess[str]]:
    """What programs did, one after the other, each in a process that was forked from one that had run `before`.

    That one imports what takes seconds, torch for instance. The program of number n has the path of a new folder,
    `folder/n`, as its argument.
    """
    for number in range(len(programs)):
        (folder / f"{number}").mkdir()
    codes = succeeded([sys.executable, "-c", _FORKING, str(folder), before, *programs]).stdout.split()
    outputs = [
        [(folder / f"{number}.{name}").read_text() for name in ("stdout", "stderr")] for number in range(len(codes))
    ]
    return [subprocess.CompletedProcess([], int(code), *output) for code, output in zip(codes, outputs, strict=True)]
