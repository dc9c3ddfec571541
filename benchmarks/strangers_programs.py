"""Programs that nobody here wrote, as published and as their reports advise: do they reach what was promised?

Usage: python -m benchmarks.strangers_programs FOLDER [--gpu h200] [--only NAME ...] [--rounds N] [--results DIR]

FOLDER/programs.tsv names each program: its repository, commit, path, and its command. FOLDER/programs/NAME/ holds it as
published, FOLDER/mended/NAME/ holds it as mended by what the report says, with `changes.txt`: how many tries it took,
then what was changed, and which words asked for it. A file `command` there replaces the command. Both run in
FOLDER/work, which holds their models and data. What they print goes to FOLDER. Without --gpu they run on this machine's
GPU. Writes strangers_programs_virtual, _h100 or _h200 as JSON and as Markdown. All times are of a step without the
recorder, as in `unstall run --against`. A program reaches its promise if its step takes at most 15 % longer. On a host
that others share, the speed of Python varies by a third from run to run. So there may be several rounds, each of a run
as published and a run as mended. The round with the median ratio counts.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from benchmarks.on_device import measured_on
from unstall.changes.promise import step_ns
from unstall.figures import duration
from unstall.result import Result

TOLERANCE = 1.15  # of the promised step


@dataclass(frozen=True, slots=True)
class Round:
    """A run of a program as published, and a run of it as mended. Times are of a step, in ns; None
    if a run had no report.

    Attributes:
        before_ns: The time as published.
        promised_ns: The time that the report promised.
        got_ns: The time as mended.
    """

    before_ns: int | None
    promised_ns: int | None
    got_ns: int | None

    @property
    def ratio(self) -> float | None:
        return self.got_ns / self.promised_ns if self.got_ns and self.promised_ns else None


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one program.

    Attributes:
        name: The name of the program.
        source: Where it was published.
        tries: How many tries the mending took.
        changed: What was changed.
        rounds: The rounds.
    """

    name: str
    source: str
    tries: int
    changed: str
    rounds: tuple[Round, ...]

    @property
    def median(self) -> Round:
        """The round with the median ratio of the time that was reached to the time that was
        promised. A round without a ratio counts as the worst.
        """
        return sorted(self.rounds, key=lambda each: each.ratio or math.inf)[len(self.rounds) // 2]

    @property
    def reached(self) -> bool:
        return self.median.ratio is not None and self.median.ratio <= TOLERANCE


def measure(folder: Path, told: dict[str, str], options: Sequence[str], limit_s: int, rounds: int) -> Row:
    """Runs a program `rounds` times as published, and as often as mended.

    Args:
        folder: The folder of all programs.
        told: The row of programs.tsv.
        options: The options of `unstall run`.
        limit_s: After so many seconds, a run is ended.
        rounds: The number of rounds.
    """
    name = told["name"]
    changes = folder / "mended" / name / "changes.txt"
    tries, _, changed = changes.read_text().partition("\n") if changes.exists() else ("0", "", "")
    made = []
    for _ in range(rounds):
        before = _run(folder, "programs", told, options, limit_s)
        after = _run(folder, "mended", told, options, limit_s) if changes.exists() else None
        made.append(
            Round(
                step_ns(before) if before else None,
                before.plan[-1].step_ns if before and before.plan else None,
                step_ns(after) if after else None,
            )
        )
    source = f"{told['repository']} {told['commit'][:10]} {told['path']}"
    return Row(name, source, int(tries), " ".join(changed.split()), tuple(made))


def markdown(rows: Sequence[Row]) -> str:
    """Returns the rows as a Markdown table."""
    lines = [
        f"{sum(row.reached for row in rows)} of {len(rows)} programs reach the plan's step within 15 %.",
        "",
        "| program | before | promised | got | ratio | rounds | tries | what was changed, and the words for it |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio, *rounds = [f"{each.ratio:.2f}" if each.ratio else "-" for each in (row.median, *row.rounds)]
        cells = [row.name, *_times(row), ratio, ", ".join(rounds), str(row.tries), row.changed]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _times(row: Row) -> list[str]:
    one = row.median
    return [duration(each) if each else "no report" for each in (one.before_ns, one.promised_ns, one.got_ns)]


def write(out: Path, where: Mapping[str, object], rows: Sequence[Row]) -> None:
    """Writes the rows to the files `out`.json and `out`.md. `where` says on what they were
    measured.
    """
    told = {"programs": [asdict(row) | {"ratio": row.median.ratio} for row in rows]}
    out.with_suffix(".json").write_text(json.dumps({**where, **told}, indent=1) + "\n")
    out.with_suffix(".md").write_text(f"{', '.join(map(str, where.values()))}\n\n{markdown(rows)}")


def _run(folder: Path, variant: str, told: dict[str, str], options: Sequence[str], limit_s: int) -> Result | None:
    program = folder / variant / told["name"]
    own = program / "command"
    script, *arguments = shlex.split(own.read_text() if own.exists() else told["command"])
    report = (folder / f"{told['name']}.{variant}.json").absolute()
    report.unlink(missing_ok=True)
    trace = report.with_suffix(".trace.json.gz")
    command = [
        sys.executable,
        "-m",
        "unstall",
        "run",
        "-q",
        "--stop",
        *options,
        "-o",
        str(report),
        "--trace",
        str(trace),
    ]
    with (folder / f"{told['name']}.{variant}.log").open("wb") as log:
        running = subprocess.Popen(
            [*command, str((program / script).absolute()), *arguments],
            cwd=folder / "work",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            running.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with its workers
            running.wait()
    return msgspec.json.decode(report.read_bytes(), type=Result) if report.exists() else None


def main() -> None:
    """Prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", help="a virtual GPU, in place of this machine's")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--limit", type=int, default=600, help="seconds for one run; one that takes longer is killed")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    options = ["--steps", str(given.steps), *(["--gpu", given.gpu] if given.gpu else [])]
    with (given.folder / "programs.tsv").open() as file:
        programs = [
            each for each in csv.DictReader(file, delimiter="\t") if not given.only or each["name"] in given.only
        ]
    given.results.mkdir(parents=True, exist_ok=True)
    where: dict[str, object] = {"device": f"virtual {given.gpu}"} if given.gpu else dict(measured_on())
    gpu = "virtual" if given.gpu else str(where["device"]).split()[1].lower()
    rows: list[Row] = []
    for each in programs:
        rows.append(row := measure(given.folder, each, options, given.limit, given.rounds))
        print(f"{row.name}: {' → '.join(_times(row))}", flush=True)
        # After each, so that a run that is cut off leaves what it had.
        write(given.results / f"strangers_programs_{gpu}", where, rows)
    print(markdown(rows))


if __name__ == "__main__":
    main()
