"""How fast a trace is loaded, and in how much memory, beside Holistic Trace Analysis (HTA).

Usage: python benchmarks/read.py TRACE [TRACE …] --peer-python PYTHON [--peer-python PYTHON …]
                                 [--copies N] [--rounds N] [--out FILE]

Each PYTHON is the interpreter of a virtual environment with a version of HTA (on PyPI `HolisticTraceAnalysis` and
`traceinsight`). Every measurement is a process of its own. Rounds are interleaved, so that whatever else the machine
does strikes all of them alike, and a ratio is of two neighbours: the median is given, with the least and the largest.
What is timed is the load alone, after all imports; HTA's is `parse_trace_file`, from the file to its data frame. The
peak of memory is that of the whole process, as Linux tells it. `--copies` reads, too, a file of so many copies.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

_RESULTS = Path(__file__).parent / "results"

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
    """One process."""

    what: str
    seconds: float
    events: int
    peak_mb: float


@dataclass(frozen=True)
class Comparison:
    """All rounds of one trace; ratios are of a peer's time to ours in the same round."""

    trace: str
    file_mb: float
    runs: list[Run]
    ratios: dict[str, list[float]]
    explain_seconds: list[float]


def measure(python: str, program: str, trace: Path) -> Run:
    output, _ = run([python, "-c", program, str(trace)])
    peak_mb, seconds, events, what = json.loads(output.splitlines()[-1])
    return Run(what, round(seconds, 4), events, round(peak_mb, 1))


def run(command: Sequence[str]) -> tuple[str, float]:
    """(what it printed, seconds from start to end)."""
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    took = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:2])} … failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout, took


def compare(trace: Path, name: str, peers: Sequence[str], rounds: int) -> Comparison:
    runs: list[Run] = []
    explain: list[float] = []
    ratios: dict[str, list[float]] = {}
    for _ in range(rounds):
        ours = measure(sys.executable, _OURS, trace)
        theirs = [measure(peer, _PEER, trace) for peer in peers]
        _, whole = run([sys.executable, "-m", "unstall", "explain", str(trace), "--json"])
        explain.append(round(whole, 4))
        runs += [ours, *theirs]
        for other in theirs:
            ratios.setdefault(other.what, []).append(round(other.seconds / ours.seconds, 2))
    return Comparison(name, round(trace.stat().st_size / 1e6, 1), runs, ratios, explain)


def table(comparison: Comparison) -> Iterator[str]:
    yield f"{comparison.trace}, {comparison.file_mb:,} MB"
    yield f"  {'':<30}{'load, s':>24}{'peak, MB':>12}{'times as long as ours':>32}"
    for what in dict.fromkeys(run.what for run in comparison.runs):
        mine = [run for run in comparison.runs if run.what == what]
        seconds, peak = spread([run.seconds for run in mine]), max(run.peak_mb for run in mine)
        ratio = spread(comparison.ratios[what]) if what in comparison.ratios else ""
        yield f"  {what:<30}{seconds:>24}{peak:>12,.0f}{ratio:>32}"
    yield f"  {'unstall explain --json, whole':<30}{spread(comparison.explain_seconds):>24}"


def spread(figures: Sequence[float]) -> str:
    return f"{median(figures):.2f} ({min(figures):.2f} to {max(figures):.2f})"


def write_copies(trace: Path, count: int, to: Path) -> None:
    """One run after the other in one file: times and ids go on where the copy before them ended."""
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
    parser.add_argument("--peer-python", action="append", default=[], metavar="PYTHON", help="may be repeated")
    parser.add_argument("--copies", type=int, metavar="N", help="also read N copies of each trace in one file")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, default=_RESULTS / "read.json", metavar="FILE")
    args = parser.parse_args()
    comparisons = []
    for trace in args.traces:
        comparisons.append(compare(trace, trace.name, args.peer_python, args.rounds))
        print("\n".join(table(comparisons[-1])), flush=True)
        if args.copies:
            with tempfile.TemporaryDirectory() as folder:
                copies = Path(folder) / "copies.json"
                write_copies(trace, args.copies, copies)
                name = f"{args.copies} copies of {trace.name} in one file"
                comparisons.append(compare(copies, name, args.peer_python, args.rounds))
            print("\n".join(table(comparisons[-1])), flush=True)
    machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**machine, "comparisons": [asdict(c) for c in comparisons]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
