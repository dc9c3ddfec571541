"""`unstall fleet` beside HTA and AMD-AGI's TraceLens: time, memory, and what each says of every rank.

Usage: python -m benchmarks.fleet_peers (--folder FOLDER [--ranks N] | --write RANKS:MEGABYTES) --python PYTHON
       [--tracelens SOURCE] [--pairs 5] [--out FILE]

PYTHON is that of an environment with HolisticTraceAnalysis and the packages of TraceLens. SOURCE is a checkout of
TraceLens, whose revision is in its file REVISION; without it, TraceLens does not run. The tools run one after the
other, each in a process of its own, `--pairs` times. A ratio is the median over these rounds; its spread is the
smallest and the largest. `unstall` runs as users run it, but without its cache: its report also has what the others do
not work out. HTA gives its temporal breakdown and its overlap, TraceLens its breakdown of the GPU's time and its
summary of stragglers.

With `--ranks`, the traces of FOLDER stand for so many ranks: of two traces, the first is also rank 2's, and so on.

Time, CPU time and memory are of a process with all its children. Other programs that use the same cores change the time
much more than the CPU time. All tools run with compiled bytecode, as installed packages have it. The figures of the
ranks are compared over one window: from the first to the last moment of device work in the file. HTA is asked to count
the last step too; TraceLens to count kernels that no operator leads to.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import gzip
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import unstall
from benchmarks.fleets import memory_of, write_apart
from unstall._version import __version__
from unstall.locate.kinds import is_communication
from unstall.read import load
from unstall.timeline.columns import DeviceKind
from unstall.timeline.intervals import Intervals

_FIGURES = ("seconds", "cpu_seconds", "megabytes")
_RANK = re.compile(rb'("distributedInfo": ?\{[^}]*"rank": ?)\d+')
_HTA = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
times = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
print(json.dumps({
    rank: {
        "span": row["kernel_time(us)"], "idle": row["idle_time(us)"], "compute": row["compute_time(us)"],
        "overlap": overlap[rank] / 100,
    }
    for rank, row in times.iterrows()
}))
"""
_TRACELENS = """
import json, pathlib, re, sys, warnings
warnings.filterwarnings("ignore")
from TraceLens import NcclAnalyser, TreePerfAnalyzer
found, paths = {}, sorted(map(str, pathlib.Path(sys.argv[1]).iterdir()))
for path in paths:
    analyser = TreePerfAnalyzer.from_file(path, include_unlinked_kernels=True)
    row = analyser.get_df_gpu_timeline().set_index("type")["time ms"] * 1e3
    found[re.search(r"\\d+", pathlib.Path(path).name)[0]] = {
        "span": row["total_time"], "idle": row["idle_time"], "compute": row["computation_time"],
        "comm": row["total_comm_time"], "exposed": row["exposed_comm_time"],
    }
try:
    NcclAnalyser(paths, len(paths)).build_df_straggler_summary(strict_metadata_check=False)
except Exception as error:
    print("no summary of stragglers:", type(error).__name__, error, file=sys.stderr)
print(json.dumps(found))
"""


def _measured(command: Sequence[str], path: str) -> dict[str, Any]:
    """Runs a command. Returns its times in seconds, the most memory that it and its children had in
    MB, and what it printed.
    """
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    most, over = 0, threading.Event()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=errors, env=environment)

        def watch() -> None:
            nonlocal most
            while not over.wait(0.05):
                most = max(most, memory_of(process.pid))

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        over.set()
        watching.join()
        out.seek(0)
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
        printed = out.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"{command[0]}: {said[-2000:]}")
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "megabytes": max(most, used.ru_maxrss << 10) / 1e6,
        "printed": printed,
        "said": said.splitlines()[-1:] if "no summary" in said else [],
    }


def figures_of(path: Path) -> dict[str, float]:
    """Returns the figures of a rank's trace as `unstall` reads them, in µs: span, idle, compute,
    communication, and exposed communication.
    """
    timeline = load(path)
    device, comm = timeline.device, is_communication(timeline)
    computes = ~comm & (device.kind != DeviceKind.COPY)
    every, talks, works = (
        Intervals.union(device.start[rows], device.end[rows]) for rows in (device.start >= 0, comm, computes)
    )
    span = int(every.end[-1] - every.start[0])
    return {
        "span": span / 1e3,
        "idle": (span - every.total) / 1e3,
        "compute": works.total / 1e3,
        "comm": talks.total / 1e3,
        "exposed": (talks.total - (talks & works).total) / 1e3,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


def _about(python: str, source: str) -> dict[str, Any]:
    asked = "import importlib.metadata as m; print(m.version('HolisticTraceAnalysis'), m.version('pandas'))"
    hta, pandas = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    revision = Path(source, "REVISION") if source else None
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": {
            "unstall": __version__,
            "HolisticTraceAnalysis": hta,
            "TraceLens": revision.read_text().strip() if revision and revision.exists() else None,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pandas": pandas,
        },
        "processors": len(os.sched_getaffinity(0)),
    }


def compared(folder: Path, python: str, source: str, pairs: int) -> dict[str, Any]:
    """Runs the three tools in turn on the traces of a folder, and returns times, memory, ratios and figures."""
    here = os.pathsep.join(filter(None, sys.path))
    commands = {
        "unstall": ([sys.executable, "-m", "unstall", "fleet", str(folder), "--no-cache", "--json"], here),
        "hta": ([python, "-c", _HTA, str(folder)], ""),
    }
    if source:
        commands["tracelens"] = ([python, "-c", _TRACELENS, str(folder)], source)
    peers = [name for name in commands if name != "unstall"]
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(pairs):
        for name, (command, path) in commands.items():
            rounds[name].append(_measured(command, path))
            print(
                f"{name} (s, s of CPU time, MB):", *(round(rounds[name][-1][each], 2) for each in _FIGURES), flush=True
            )
    found: dict[str, Any] = {"ranks": len(list(folder.iterdir()))}
    found["megabytes"] = round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1)
    for what in _FIGURES:
        values = {name: [each[what] for each in rounds[name]] for name in commands}
        found[f"{what}_taken"] = {name: _spread(each) for name, each in values.items()}
        found[f"{what}_ratio"] = {
            name: _spread([other / ours for other, ours in zip(values[name], values["unstall"], strict=True)])
            for name in peers
        }
    last = {name: each[-1] for name, each in rounds.items()}
    found["said"] = {name: each["said"] for name, each in last.items() if each["said"]}
    found["figures_us"] = {
        rank: {
            "unstall": {each: round(value, 1) for each, value in figures_of(path).items()},
            **{name: json.loads(last[name]["printed"].splitlines()[-1])[rank] for name in peers},
        }
        for rank, path in _by_rank(folder)[:8]
    }
    return found


def repeat(folder: Path, to: Path, ranks: int) -> None:
    """Writes the traces of a folder again and again, until there are `ranks` of them, each with a
    rank of its own.
    """
    paths = [path for _, path in _by_rank(folder)]
    for rank in range(ranks):
        path = paths[rank % len(paths)]
        text, found = _RANK.subn(rb"\g<1>%d" % rank, gzip.decompress(path.read_bytes()))
        if found != 1:
            raise SystemExit(f"{path}: its distributedInfo has no rank")
        (to / f"rank-{rank}.json.gz").write_bytes(gzip.compress(text))


def _by_rank(folder: Path) -> list[tuple[str, Path]]:
    """Returns the rank and the path of each trace. The rank is the first number in the file's name."""
    found = [(number[0], path) for path in folder.iterdir() if (number := re.search(r"\d+", path.name))]
    return sorted(found, key=lambda each: int(each[0]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    traces = parser.add_mutually_exclusive_group(required=True)
    traces.add_argument("--folder", type=Path)
    traces.add_argument("--write", metavar="RANKS:MEGABYTES")
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--python", required=True)
    parser.add_argument("--tracelens", default="")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as written:
        if args.write:
            ranks, _, megabytes = args.write.partition(":")
            write_apart(Path(written), int(ranks), float(megabytes))
        if args.ranks:
            repeat(args.folder, Path(written), args.ranks)
        compileall.compile_dir(Path(unstall.__file__).parent, quiet=1)
        folder = Path(written) if args.write or args.ranks else args.folder
        found = compared(folder, args.python, args.tracelens, args.pairs)
    found = {**_about(args.python, args.tracelens), "traces": args.write or args.folder.name, **found}
    print(json.dumps(found, indent=1))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
