"""Once a recording is over, does a program run as fast as before? Of real programs on a GPU.

    python -m benchmarks.recording_over [--rounds 100] [--only resnet-18] [--seconds 150] [--out FILE]

A shared host changes its speed by a tenth within a second, so a round is short: a few steps before and a few behind, in
between a recording of steps with the device and of the host alone, or as many steps without. Rounds of both kinds come
in a drawn order. The figure is the step behind by the one before, as the median of the rounds with its standard error,
for either kind, and one by the other. Skips itself where there is no GPU, torchvision or transformers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from benchmarks.recording import host_only, recorded

_TIMED, _BETWEEN = 8, 3  # steps of a stretch, and of each part of a recording
_FEWEST = 5  # rounds

Row = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100, help="of either kind, the most")
    parser.add_argument("--seconds", type=float, default=150.0, help="for all programs")
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped("torchvision", "transformers"):
        print(skipped)
        return 0
    import torch

    from benchmarks.recording_programs import PROGRAMS

    chosen = {name: make for name, (make, _) in PROGRAMS.items() if args.only.lower() in name.lower()}
    if not chosen:
        parser.error(f"--only {args.only}: it is in none of {', '.join(PROGRAMS)}")
    result: Row = {**measured_on(), "programs": {}}
    for name, make in chosen.items():
        row = over(make(), torch.cuda.synchronize, args.rounds, args.seconds / len(chosen))
        result["programs"][name] = row
        print(f"{name}: {shown(row)}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def over(step: Callable[[], None], wait: Callable[[], None], rounds: int, for_s: float) -> Row:
    """Rounds of both kinds, at most so many, until the time is up."""
    ratios: dict[bool, list[float]] = {True: [], False: []}
    chance, until = random.Random(0), time.monotonic() + for_s
    for _ in range(2 * _TIMED):
        step()
    while len(ratios[True]) < rounds and (time.monotonic() < until or len(ratios[True]) < _FEWEST):
        for records in chance.sample((True, False), 2):
            before = _stretch(step, wait)
            _between(step, records)
            ratios[records].append(_stretch(step, wait) / before)
    with_it, without = middle(ratios[True]), middle(ratios[False])
    error = math.hypot(with_it["error"] / with_it["median"], without["error"] / without["median"])
    share = with_it["median"] / without["median"]
    return {
        "rounds": len(ratios[True]),
        "recorded": with_it,
        "not": without,
        "share": {"median": share, "error": error * share},
    }


def _stretch(step: Callable[[], None], wait: Callable[[], None]) -> float:
    """A step's median time in seconds, after one that fills the caches and the device's queue."""
    step()
    times = []
    for _ in range(_TIMED):
        wait()
        begun = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def _between(step: Callable[[], None], records: bool) -> None:
    if not records:
        for _ in range(2 * _BETWEEN):
            step()
        return
    for part in (recorded("cupti"), host_only()):
        with part:
            for _ in range(_BETWEEN):
                step()


def middle(values: Sequence[float]) -> Row:
    """The median of independent values, and its standard error by their quartiles, as of a normal distribution."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "error": 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))}


def shown(row: Row) -> str:
    """For people."""
    told = {what: f"{row[what]['median']:.3f} ± {row[what]['error']:.3f}" for what in ("recorded", "not", "share")}
    return (
        f"behind by before: {told['recorded']} around a recording, {told['not']} around none; "
        f"one by the other {told['share']} ({row['rounds']} rounds)"
    )


if __name__ == "__main__":
    sys.exit(main())
