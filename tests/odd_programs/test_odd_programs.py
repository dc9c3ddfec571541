"""A program prints and ends under unstall as it does under plain Python.

The programs are in `programs.txt`. Each looks at its own process, or ends in an unusual way, and prints what it saw.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_TEXTS = (Path(__file__).parent / "programs.txt").read_text().split("# --- ")[1:]
PROGRAMS = {name: code.strip() for name, code in (text.split("\n", 1) for text in _TEXTS)}
RUNNER = """\
import runpy, sys
import unstall
if sys.argv.pop(1) == "record":
    unstall.record().__enter__()
runpy.run_path(sys.argv[1], run_name="__main__")
"""
PLAIN = ["program.py", "-x", "an argument"]
WAYS = {
    "run": (PLAIN, ["-m", "unstall", "run", "-q", *PLAIN]),
    "run --gpu": (PLAIN, ["-m", "unstall", "run", "-q", "--gpu", "h200", *PLAIN]),
    "record()": (["runner.py", "no", *PLAIN], ["runner.py", "record", *PLAIN]),
}
VARIES = re.compile(rb"0x[0-9a-f]+|(?<=^Ran 1 test in )[\d.]+", re.MULTILINE)  # addresses, and times of unittest
OWN = re.compile(rb"unstall: .*\n")
BY_DESIGN = {
    ("subprocess", "run --gpu"): "variables of the environment give child processes a virtual GPU",
    ("environment", "run --gpu"): "variables of the environment give child processes a virtual GPU",
    ("arguments", "record()"): "the program that records has another command line",
}


def ran(words: list[str], program: str, folder: Path) -> tuple[int, bytes, bytes]:
    """The exit code, stdout, and stderr without unstall's own lines."""
    folder.mkdir()
    (folder / "program.py").write_text(program)
    (folder / "runner.py").write_text(RUNNER)
    done = subprocess.run(
        [sys.executable, *words],
        input=b"a line\n",
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        timeout=60,
        check=False,
    )
    shutil.rmtree(folder)
    return done.returncode, VARIES.sub(b"...", done.stdout), VARIES.sub(b"...", OWN.sub(b"", done.stderr))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_prints_and_ends_as_under_plain_python(name: str, way: str, tmp_path: Path) -> None:
    if why := BY_DESIGN.get((name, way)):
        pytest.skip(why)
    plain, ours = (ran(words, PROGRAMS[name], tmp_path / "folder") for words in WAYS[way])
    assert ours == plain
