"""How fast a trace is loaded and explained, and in how much memory, beside other versions and other programs.

Usage: python -m benchmarks.read TRACE [TRACE …] [--before BEFORE] [--peer-python PYTHON …]
                                 [--copies N] [--rounds N] [--out FILE]

BEFORE is another version of unstall: a revision, or the folder of another checkout. Each PYTHON is the interpreter of a
virtual environment with a version of Holistic Trace Analysis (HTA; on PyPI `HolisticTraceAnalysis` and `traceinsight`).
Every measurement is a process of its own. Rounds are interleaved, so that whatever else the machine does strikes all of
them alike, and a ratio is of two neighbours: the median is printed, with the least and the largest. Loads are timed
alone, after all imports; HTA's is `parse_trace_file`, from the file to its data frame. Explaining is the whole of
`unstall explain --json`. The peak of memory is that of the process that loads, as Linux reports it. `--copies` also
reads a file of so many copies. `--out` keeps all times.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.before import HERE, environment, installed

# A process's own figure: what `wait4` tells of a child is at least what its parent took.
_PEAK = r"""
import json, re, sys, time
def say(*figures):
    peak_kb = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
    print(json.dumps([peak_kb / 1024, *figures]))
"""

_OURS = (
    _PEAK
    + """
import unstall, unstall.read.kineto
begun = time.perf_counter()
timeline = unstall.load(sys.argv[1])
took = time.perf_counter() - begun
say(took, len(timeline.host) + len(timeline.device), "unstall " + unstall.__version__)
"""
)

_PEER = (
    _PEAK
    + """
import importlib.metadata, logging
logging.disable(logging.CRITICAL)
from hta.common.trace import parse_trace_file
begun = time.perf_counter()
frame = parse_trace_file(sys.argv[1])[1]
took = time.perf_counter() - begun
packages = {d.name: d.version for d in importlib.metadata.distributions()}
name = next(name for name in ("traceinsight", "HolisticTraceAnalysis") if name in packages)
say(took, len(frame), f"{name} {packages[name]}")
"""
)


@dataclass(frozen=True)
class Run:
    """What was measured of one version of one program in one round."""

    what: str
    load_s: float
    events: int
    peak_mb: float
    explain_s: float | None = None


@dataclass(frozen=True)
class Comparison:
    """What was measured on one trace. The first run of a round is that of this version of
    unstall.
    """

    trace: str
    file_mb: float
    rounds: list[list[Run]]


@dataclass(frozen=True)
class Version:
    """A version of unstall, or of another program, that is measured.

    Attributes:
        python: The path of the interpreter that runs it.
        source: For a version of unstall, the folder from which it is imported.
        name: The name in the tables.
    """

    python: str
    source: Path | None = None
    name: str | None = None

    def measure(self, trace: Path) -> Run:
        if self.source is None:
            peak_mb, load_s, events, what = json.loads(self._run("-c", _PEER, str(trace))[0].splitlines()[-1])
            return Run(what, round(load_s, 4), events, round(peak_mb, 1))
        peak_mb, load_s, events, what = json.loads(self._run("-c", _OURS, str(trace))[0].splitlines()[-1])
        _, explain_s = self._run("-m", "unstall", "explain", str(trace), "--json", "-q")
        return Run(self.name or what, round(load_s, 4), events, round(peak_mb, 1), round(explain_s, 4))

    def _run(self, *arguments: str) -> tuple[str, float]:
        """Runs the interpreter with `arguments`. Returns what it printed, and how many seconds it
        took.
        """
        begun = time.perf_counter()
        done = subprocess.run(
            [self.python, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment(self.source) if self.source else None,
        )
        took = time.perf_counter() - begun
        if done.returncode:
            raise SystemExit(f"{self.python} … failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout, took


def compare(trace: Path, name: str, versions: Sequence[Version], rounds: int) -> Comparison:
    """Measures all versions on a trace, by turns, in another order in each round."""
    measured = []
    for number in range(rounds):
        turns = [(number + turn) % len(versions) for turn in range(len(versions))]
        runs = {turn: versions[turn].measure(trace) for turn in turns}
        measured.append([runs[turn] for turn in range(len(versions))])
    return Comparison(name, round(trace.stat().st_size / 1e6, 1), measured)


def table(comparison: Comparison) -> Iterator[str]:
    """Yields the lines of a table: for each other version, its figures over those of this version
    of unstall. Above 1, this version is faster or smaller.
    """
    yield f"{comparison.trace}, {comparison.file_mb:,} MB"
    yield f"  {'times as much as ours':<30}{'load':>24}{'explain':>24}{'peak memory':>24}"
    ours, *others = zip(*comparison.rounds, strict=True)
    for theirs in others:
        pairs = list(zip(theirs, ours, strict=True))
        load = spread([one.load_s / other.load_s for one, other in pairs])
        explain = [one.explain_s / other.explain_s for one, other in pairs if one.explain_s and other.explain_s]
        peak = spread([one.peak_mb / other.peak_mb for one, other in pairs])
        yield f"  {theirs[0].what:<30}{load:>24}{spread(explain) if explain else '-':>24}{peak:>24}"


def spread(figures: Sequence[float]) -> str:
    return f"{median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"


def write_copies(trace: Path, count: int, to: Path) -> None:
    """Writes a trace that has the run of another trace `count` times, one after the other. The
    times and ids of each copy begin where those of the copy before it end.
    """
    document = json.loads(gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes())
    events: list[dict[str, Any]] = document.pop("traceEvents")
    times = [event["ts"] for event in events if "ts" in event]
    length = max(times) - min(times) + 10**6
    with to.open("w") as file:
        file.write(json.dumps(document)[:-1] + ', "traceEvents": [')
        for i in range(count):
            file.write(",\n" if i else "")
            file.write(",\n".join(json.dumps(later(event, i * length, i * 10**7)) for event in events))
        file.write("]}")


def later(event: dict[str, Any], time: float, number: int) -> dict[str, Any]:
    moved = dict(event)
    if "ts" in event:
        moved["ts"] = event["ts"] + time
    if "id" in event:
        moved["id"] = event["id"] + number
    if "args" in event:
        ids = {key: event["args"][key] + number for key in ("correlation", "External id") if key in event["args"]}
        moved["args"] = event["args"] | ids
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--before", metavar="BEFORE", help="a revision, or the folder of another checkout")
    parser.add_argument("--peer-python", action="append", default=[], metavar="PYTHON", help="may be repeated")
    parser.add_argument("--copies", type=int, metavar="N", help="also read N copies of each trace in one file")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all times as JSON")
    args = parser.parse_args()
    comparisons = []
    with ExitStack() as stack:
        # Both are installed by pip, which compiles them: a checkout's bytecode may not be cached.
        ours = stack.enter_context(installed(str(HERE)))
        versions = [Version(sys.executable, ours), *(Version(python) for python in args.peer_python)]
        if args.before:
            source = stack.enter_context(installed(args.before))
            versions.append(Version(sys.executable, source, f"unstall at {args.before}"))
        for trace in args.traces:
            files = [(trace, trace.name)]
            if args.copies:
                copies = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "copies.json"
                write_copies(trace, args.copies, copies)
                files.append((copies, f"{args.copies} copies of {trace.name} in one file"))
            for path, name in files:
                comparisons.append(compare(path, name, versions, args.rounds))
                print("\n".join(table(comparisons[-1])), flush=True)
    if not args.out:
        return
    machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    args.out.write_text(json.dumps({**machine, "comparisons": [asdict(c) for c in comparisons]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
