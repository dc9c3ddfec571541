"""Programs under plain Python, and under the launcher, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCES = str(Path(__file__).parents[2] / "src")

LAUNCHER = """
import sys
sys.path.append(sys.argv[1])
from unstall.launching.launch import launch, leave_as
from unstall.recording.settings import Settings
sys.exit(leave_as(launch(sys.argv[3:], "unstall.recording.child", Settings(sys.argv[2]).to_json())))
"""


@dataclass(frozen=True)
class Done:
    """What a program left behind."""

    code: int
    out: str
    err: str

    @classmethod
    def of(cls, command: Sequence[str], folder: Path, *, stdin: str = "", env: dict[str, str] | None = None) -> Done:
        """Run it in a folder, in our own environment and `env`."""
        environment = {**_without_path(), **(env or {})}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=folder, env=environment)
        return cls(done.returncode, done.stdout, done.stderr)


def python(*flags: str) -> list[str]:
    """The beginning of a plain command."""
    return [sys.executable, *flags]


def launcher(folder: Path, *flags: str) -> list[str]:
    """The beginning of a launched one, which records to `folder`."""
    return [sys.executable, *flags, "-c", LAUNCHER, SOURCES, str(folder)]


def _without_path() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def write_program(folder: Path, source: str, name: str = "program.py") -> Path:
    """Write a program's file, and its folder."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


def both(
    tmp_path: Path, folder: Path, source: str, *args: str, stdin: str = "", env: dict[str, str] | None = None
) -> tuple[Done, Done]:
    """A program under plain Python, and launched."""
    command = [write_program(tmp_path, source).name, *args]
    return (
        Done.of([*python(), *command], tmp_path, stdin=stdin, env=env),
        Done.of([*launcher(folder), *command], tmp_path, stdin=stdin, env=env),
    )
