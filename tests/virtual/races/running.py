"""Programs on the virtual GPU, each run once: the races that its engine finds, and those found as on a real GPU."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
PLANTED = sorted(path.stem for path in (PROGRAMS / "planted").glob("*.py"))
CORRECT = sorted(path.stem for path in (PROGRAMS / "correct").glob("*.py"))

_RUN = """
import json, re, runpy, sys
from unstall.virtual.entry import virtual_gpu
gpu = virtual_gpu("h200").start()
import torch
from unstall.blaming.races.watch import RaceWatch
watch = RaceWatch()
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
finally:
    watch.stop()
    gpu.stop()
virtual = []
for finding in gpu.explain().findings:
    if finding.wrong:
        second, first = re.findall(re.escape(sys.argv[1].rpartition("/")[2]) + r":(\\d+) on", finding.saw)
        virtual.append((int(first), int(second), finding.title))
real = [(race.earlier.where.line, race.later.where.line, race.title) for race in watch.noted.races()]
counts = [race.count for race in watch.noted.races()]
print("= " + json.dumps({"virtual": virtual, "real": real, "counts": counts, "failed": watch.failed}))
"""


@dataclass(frozen=True)
class Outcome:
    """The races of a program: the line of the earlier operation, that of the later one, and the title."""

    virtual: list[tuple[int, int, str]]
    real: list[tuple[int, int, str]]
    counts: list[int]
    failed: str


@functools.cache
def outcome(path: Path) -> Outcome:
    """Runs a program to its end."""
    command = [sys.executable, "-c", _RUN, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (told,) = [line for line in ran.stdout.splitlines() if line.startswith("= ")]
    found = json.loads(told[2:])
    found["virtual"], found["real"] = ([tuple(race) for race in found[way]] for way in ("virtual", "real"))
    return Outcome(**found)


def planted(program: str) -> Outcome:
    return outcome(PROGRAMS / "planted" / f"{program}.py")


def correct(program: str) -> Outcome:
    return outcome(PROGRAMS / "correct" / f"{program}.py")


def lines(program: str) -> tuple[int, int]:
    """Returns the lines of the planted race, that of the earlier operation first."""
    text = (PROGRAMS / "planted" / f"{program}.py").read_text().splitlines()
    found = [
        number
        for mark in ("first", "second")
        for number, line in enumerate(text, 1)
        if line.endswith(f"# race: {mark}")
    ]
    first, second = found
    return first, second
