"""How often `compare` is right, beside busy neighbours: `python benchmarks/bench_compare.py --out compare.json`.

Two copies of one function must be SAME in 95 of 100 runs, and of two that differ by 3 % the quicker must be named in 90
of 100; with `--pyperf KIND` the intervals of its ratio and of that by `python -m pyperf timeit` must meet. The
neighbours are processes that burn a core, or stream through memory, for random times. Exits with 1 where one of these
does not hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unstall.measuring.adapters import Adapter
from unstall.measuring.compare import compare
from unstall.measuring.statistics import Interval, ratio_interval

LEAST_SAME, LEAST_NAMED = 0.95, 0.90
MORE = 1.03
_PYPERF_ROUNDS = 24
KINDS = {
    "Python": ("pass", "total = 0.0\nfor number in range({}):\n    total += number * 0.5", 1000),
    "NumPy": ("import numpy as np; x = np.arange(500.0)", "for _ in range({}):\n    x.sum()", 200),
    "torch": ("import torch; torch.set_num_threads(1); x = torch.ones(500)", "for _ in range({}):\n    x + x", 200),
    "memory": ("import numpy as np; x = np.ones(50_000)", "for _ in range({}):\n    x.copy()", 100),
}


def main() -> int:
    options = _arguments()
    if options.pyperf and importlib.util.find_spec("pyperf") is None:
        sys.exit("needs pyperf: pip install 'unstall[bench]'")
    report: dict[str, Any] = {
        "runs": options.runs,
        "neighbours": options.neighbours,
        "cores": multiprocessing.cpu_count(),
        "processor": Adapter().device_name,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "kinds": {},
    }
    print(f"{options.runs} runs of each, {options.neighbours} busy neighbours")
    print(f"{'function':10s} {'two copies':32s} {'3 % more work':32s} {'seconds a run':>13s}")
    good = True
    for kind in options.kinds:
        with busy(options.neighbours):
            same, seconds = _answers(kind, 1.0, options)
            more, _ = _answers(kind, MORE, options)
        good &= same["SAME"] >= LEAST_SAME * options.runs and more["SLOW"] >= LEAST_NAMED * options.runs
        print(f"{kind:10s} {_counts(same):32s} {_counts(more):32s} {seconds:13.2f}", flush=True)
        report["kinds"][kind] = {"same": dict(same), "more": dict(more), "seconds": round(seconds, 3)}
        if kind in options.pyperf:
            good &= _beside_pyperf(kind, report["kinds"][kind])
    if options.out:
        options.out.write_text(json.dumps(report, indent=2, sort_keys=True) + "\n")
    return 0 if good else 1


def _answers(kind: str, more: float, options: argparse.Namespace) -> tuple[Counter[str], float]:
    """Compares two functions again and again.

    Args:
        kind: What the functions do, a key of `KINDS`.
        more: How much work the second does, over that of the first.
        options: The options of the command line.

    Returns:
        `(answers, seconds)`: how often `compare` gave each answer for the second function, and how
        long one comparison took.
    """
    found: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(options.runs):
        compared = compare(functions(kind, more), check=False, seed=seed, max_seconds=options.max_seconds)
        found[str(compared.answer)] += 1
    return found, (time.monotonic() - began) / options.runs


def functions(kind: str, more: float) -> dict[str, Callable[[], None]]:
    """Returns two functions, "a" and "b", that use the same data and have code of their own. "b"
    does `more` times the work of "a". `kind` is a key of `KINDS`.
    """
    setup, statement, loops = KINDS[kind]
    known: dict[str, Any] = {}
    exec(setup, known)
    for name, times in (("a", loops), ("b", round(loops * more))):
        body = statement.format(times).replace("\n", "\n    ")
        exec(f"def {name}():\n    {body}\n", known)
    return {name: known[name] for name in "ab"}


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """Runs so many processes beside the block. They take the machine's cores and its memory
    bandwidth away for random times.
    """
    processes = [multiprocessing.Process(target=_burn, args=(seed,), daemon=True) for seed in range(neighbours)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _burn(seed: int) -> None:
    rng = random.Random(seed)
    memory = np.ones(4_000_000)
    while True:
        end = time.monotonic() + rng.expovariate(1 / 0.03)
        streams = rng.random() < 0.5
        while time.monotonic() < end:
            if streams:
                memory += 1
        time.sleep(rng.expovariate(1 / 0.03))


def _beside_pyperf(kind: str, into: dict[str, Any]) -> bool:
    """Returns whether two intervals of the ratio of two functions overlap: that of `compare`, and
    that of pyperf, which runs the functions by turns in new processes. Adds both intervals to
    `into`.
    """
    times = np.array([[_pyperf(kind, more) for more in (1.0, MORE)] for _ in range(_PYPERF_ROUNDS)])
    theirs = ratio_interval(times[:, 1], times[:, 0], pairs=True)
    ours = compare(functions(kind, MORE), check=False)["b"].ratio
    agree = ours.low <= theirs.high and theirs.low <= ours.high
    print(f"{'':10s} ratio {_shown(ours)}, by pyperf {_shown(theirs)}: {'they agree' if agree else 'THEY DIFFER'}")
    into["ratio"] = [ours.low, ours.median, ours.high]
    into["ratio_by_pyperf"] = [theirs.low, theirs.median, theirs.high]
    return agree


def _pyperf(kind: str, more: float) -> list[float]:
    """Returns the times that pyperf measured for a function, in seconds. `kind` is a key of
    `KINDS`, and `more` says how many times its work the function does.
    """
    setup, statement, loops = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        options = ["-q", "-p", "1", "-n", "5", "--min-time", "0.03", "-o", str(path)]
        lines = statement.format(round(loops * more)).split("\n")
        command = [sys.executable, "-m", "pyperf", "timeit", *options, "-s", setup, *lines]
        subprocess.run(command, check=True, capture_output=True)
        runs = json.loads(path.read_text())["benchmarks"][0]["runs"]
    return [float(value) for run in runs for value in run.get("values", ())]


def _counts(found: Counter[str]) -> str:
    return ", ".join(f"{count} {answer}" for answer, count in found.most_common())


def _shown(interval: Interval) -> str:
    return f"{interval.median:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--neighbours", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--max-seconds", type=float, default=5.0)
    parser.add_argument("--pyperf", nargs="+", choices=KINDS, default=[], help="beside pyperf, of the extra bench")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
