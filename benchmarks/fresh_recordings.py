"""Does every recording of a short program have a report?

    python -m benchmarks.fresh_recordings [--runs 30] [--seed N] [--at-once 4] [--out FILE]

Draws programs of 1 to 60 steps, and options of `unstall run`, by lot. Each run must exit as the program does, and leave
a trace and a report with work of the device. Without a CUDA device the runs are on a virtual H200. Exits with 1 if any
run lacks something.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks import short_program
from benchmarks.on_device import measured_on, why_skipped

_OPTIONS = (
    "",
    "--stop",
    "--steps 2",
    "--steps 20",
    "--warmup 0 --steps 1",
    "--warmup 6",
    "--warmup 70",
    "--after 1",
    "--after 1000",
    "--for 0.5",
    "--recorder torch",
)


class Draw(NamedTuple):
    """A recording that was drawn by lot.

    Attributes:
        kind: The kind of program.
        steps: The number of its steps.
        options: The options of `unstall run`.
    """

    kind: str
    steps: int
    options: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: of the clock")
    parser.add_argument("--at-once", type=int, default=2, metavar="N")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    gpu = ["--gpu", "h200"] if why_skipped() else []
    lot = random.Random(args.seed)
    kinds = list(short_program.KINDS)
    draws = [
        Draw(kinds[number % len(kinds)], lot.choice((1, 2, 3, lot.randint(4, 60))), lot.choice(_OPTIONS))
        for number in range(args.runs)
    ]
    with ThreadPoolExecutor(args.at_once) as pool:
        rows = list(pool.map(lambda draw: _recorded(draw, gpu), draws))
    lacking = [row for row in rows if row["lacks"]]
    for row in rows:
        print(f"{row['kind']:<12} {row['steps']:>2}  {row['options']:<22} {row['lacks'] or 'ok':<8} {row['says']}")
    print(f"{len(rows) - len(lacking)} of {len(rows)} have a report (seed {args.seed})")
    if args.out:
        of = {"device": "virtual h200"} if gpu else measured_on()
        args.out.write_text(json.dumps({**of, "seed": args.seed, "runs": rows}, indent=1) + "\n")
    return bool(lacking)


def _recorded(draw: Draw, gpu: list[str]) -> dict[str, object]:
    expected = 1 if draw.kind == "raises" and draw.steps > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        trace, report = Path(folder, "run.trace.json.gz"), Path(folder, "report.json")
        # A virtual run has one recorder.
        options = [] if gpu and "--recorder" in draw.options else draw.options.split()
        command = [sys.executable, "-m", "unstall", "run", *gpu, *options, "--trace", str(trace), "-o", str(report)]
        done = subprocess.run(
            [*command, short_program.__file__, draw.kind, str(draw.steps)], capture_output=True, text=True, timeout=300
        )
        lacks, says = "", ""
        if done.returncode != expected:
            lacks, says = f"exit status {done.returncode}", done.stderr[-300:]
        elif not trace.exists():
            lacks, says = "a trace", done.stderr[-300:]
        elif not report.exists():
            lacks, says = "a report", done.stderr[-300:]
        else:
            result = json.loads(report.read_text())
            says = result["verdict"]["text"].partition(". ")[0]
            if not result["source"]["device_ops"]:
                lacks = "work of the device"
    return {**draw._asdict(), "lacks": lacks, "says": says}


if __name__ == "__main__":
    sys.exit(main())
