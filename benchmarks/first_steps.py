"""What recording a program's first steps costs it.

    python -m benchmarks.first_steps [--rounds 6] [--steps 40] [--out FILE]     (needs a CUDA device)

`unstall run` records first steps, in case the program ends soon, before it warms up and records its steady state. Here
a program runs plainly and under `unstall run` in turns. Each step waits for the device and is timed by the program.
`first` are the steps that are recorded as first steps. `later` are the last ten, which nothing records any more. Each
is the ratio of the recorded run's steps to the plain run's, as median, least and most of the rounds. `seconds` is the
same ratio of the whole process, until the program's own end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import short_program
from benchmarks.on_device import measured_on, why_skipped

_FIRST = slice(2, 7)  # without the steps that load kernels
_LATER = slice(-10, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only", nargs="+", choices=list(short_program.KINDS), default=["trained", "generated"])
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if skipped := why_skipped("transformers"):
        print(skipped)
        return
    programs = {kind: _compared(kind, args.steps, args.rounds) for kind in args.only}
    text = json.dumps({**measured_on(), "programs": programs}, indent=1)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


def _compared(kind: str, steps: int, rounds: int) -> dict[str, object]:
    ratios: dict[str, list[float]] = {"first": [], "later": [], "seconds": []}
    for _ in range(rounds):
        plain, recorded = _run(kind, steps, recorded=False), _run(kind, steps, recorded=True)
        for name, part in (("first", _FIRST), ("later", _LATER)):
            ratios[name].append(statistics.median(recorded[0][part]) / statistics.median(plain[0][part]))
        ratios["seconds"].append(recorded[1] / plain[1])
    return {
        name: {"median": statistics.median(of), "least": min(of), "most": max(of)} for name, of in ratios.items()
    } | {"rounds": rounds, "steps": steps}


def _run(kind: str, steps: int, *, recorded: bool) -> tuple[list[float], float]:
    """Runs a program, recorded or not. Returns the times of its steps and the time until its end,
    in seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder, "times.json")
        program = [short_program.__file__, kind, str(steps), str(times)]
        under = ["-m", "unstall", "run", "-q", "--trace", str(Path(folder, "run.trace.json.gz"))] if recorded else []
        began = time.time()
        subprocess.run([sys.executable, *under, *program], check=True, capture_output=True)
        return json.loads(times.read_text()), times.stat().st_mtime - began


if __name__ == "__main__":
    main()
