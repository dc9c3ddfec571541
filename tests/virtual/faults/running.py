"""Programs with faults under `unstall run --gpu h200 --blame`, each run once."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Outcome:
    """What the program left behind: its exit code, what was printed, and unstall's result."""

    program: str
    code: int
    stdout: str
    stderr: str
    result: dict[str, Any]

    @property
    def finding(self) -> dict[str, Any]:
        """The only finding."""
        (finding,) = self.result["findings"]
        found: dict[str, Any] = finding
        return found

    @property
    def fault(self) -> dict[str, Any]:
        fault: dict[str, Any] = self.finding["fault"]
        return fault

    @property
    def lines_of_traceback(self) -> list[int]:
        """The program's own lines in the traceback that ended it."""
        return [int(line) for line in re.findall(rf'{self.program}\.py", line (\d+)', self.stderr)]


@functools.cache
def outcome(
    program: str, *arguments: str, gpu: str = "h200", options: tuple[str, ...] = (), **environment: str
) -> Outcome:
    """Runs a program to its end."""
    with TemporaryDirectory() as folder:
        saved = Path(folder) / "result.json"
        files = ["--trace", str(Path(folder) / "run.json.gz"), "-o", str(saved)]
        command = ["-m", "unstall", "run", "--gpu", gpu, "--blame", *files, *options, f"{program}.py", *arguments]
        done = subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=PROGRAMS,
            timeout=600,
            check=False,
            env={**os.environ, **environment},
        )
        assert saved.exists(), done.stderr[-4000:]
        return Outcome(program, done.returncode, done.stdout, done.stderr, json.loads(saved.read_text()))


def line(program: str, mark: str = "FAULT") -> int:
    """Returns the number of the line that ends with this comment."""
    text = (PROGRAMS / f"{program}.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(text, 1) if line.endswith(f"# {mark}")]
    return number
