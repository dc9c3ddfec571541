"""What recording costs: step times of real programs on a GPU, by those of their neighbours without recording.

    python -m benchmarks.recording [--seconds 300] [--only resnet-18] [--out benchmarks/results/recording_h200.json]

A shared host changes its speed by a tenth within a second, so what is compared is short, and next to each other: five
steps while something records, between as many without before and behind. A round of `cupti` has what a window has,
once with the device and four times of the host alone, and once nothing at all, in a drawn order; its window costs the
mean of the five. Programs take turns, round by round, but for those whose figure is exact to 0.2 % already. Then come
rounds of what torch records. Figures are medians of the rounds, with their standard errors; that of nothing tells
whether they can be trusted. Needs a CUDA GPU, torchvision and transformers, and says so where there is none.

Held to the figures: a window of `cupti` costs at most 1.05 in the median of the programs, and 1.10 of each.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from unstall.record.host_only import SETTLING, TIMES, HostOnly
from unstall.record.journal import Journal

Row = dict[str, Any]
Way = Callable[[], AbstractContextManager[None]]
WINDOW, DEVICE, HOST, NOTHING = "a window of cupti", "its steps with the device", "of the host alone", "nothing"
USUAL = ("torch", "torch.profiler with stacks and shapes")
STEPS = 5  # as a window has
_SETTLING = 3  # steps, when a recorder has gone
_FEWEST = 10  # rounds
_EXACT = 0.002


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="for all programs; a fifth is for what torch records"
    )
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--recorders", nargs="+", choices=("cupti", "torch"), default=["cupti", "torch"])
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped("torchvision", "transformers"):
        print(skipped)
        return 0
    from benchmarks.recording_programs import chosen

    steps = {name: make() for name, make in chosen(args.only).items()}
    result: Row = {**measured_on(), "steps": STEPS, "programs": {name: {} for name in steps}}
    # Once torch's profiler has been used, its hold on CUPTI stays: it comes last.
    for recorder, ways, share in (("cupti", CUPTI, 0.8), ("torch", TORCH, 0.2)):
        if recorder not in args.recorders:
            continue
        rounds = {name: Rounds(partial(timed, step), ways) for name, step in steps.items()}
        take_turns(list(rounds.values()), args.seconds * share)
        for name, each in rounds.items():
            result["programs"][name][recorder] = each.figures()
            print(f"{name}, {shown(each.figures())}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    if "cupti" in args.recorders:
        print(summary([each["cupti"]["costs"][WINDOW] for each in result["programs"].values()]))
    return 0


class Rounds:
    """What steps take by the mean of those before and behind, of each way and round; and what these take.

    A round has each of the ways once, in a drawn order; of those with one name it is the mean.
    """

    def __init__(self, time_steps: Callable[[int, int], float], ways: Sequence[tuple[str, Way]]) -> None:
        """`time_steps` gives the seconds a step, of so many after so many that settle."""
        self._time_steps, self._ways = time_steps, ways
        self._chance = random.Random(0)
        self._ratios: dict[str, list[float]] = {way: [] for way, _ in ways}
        self._plain: list[float] = []

    def add(self) -> None:
        """One more."""
        ratios: dict[str, list[float]] = {way: [] for way in self._ratios}
        before = self._without()
        for way, records in self._chance.sample(self._ways, len(self._ways)):
            with records():
                during = self._time_steps(STEPS, SETTLING)
            behind = self._without()
            ratios[way].append(2 * during / (before + behind))
            before = behind
        for way, each in ratios.items():
            self._ratios[way].append(statistics.mean(each))

    def _without(self) -> float:
        self._plain.append(self._time_steps(STEPS, _SETTLING))
        return self._plain[-1]

    def figures(self) -> Row:
        """Of all rounds so far; two at least."""
        ratios = dict(self._ratios)
        if DEVICE in ratios:
            parts = zip(ratios[DEVICE], ratios[HOST], strict=True)
            ratios = {WINDOW: [(device + TIMES * host) / (1 + TIMES) for device, host in parts], **ratios}
        return {
            "rounds": len(ratios[NOTHING]),
            "plain_ms": {"first": 1e3 * self._plain[0], "median": 1e3 * statistics.median(self._plain)},
            "costs": {way: middle(each) for way, each in ratios.items()},
        }


def take_turns(all_rounds: Sequence[Rounds], for_s: float) -> None:
    """Add rounds until the time is up, a few at least, or all are exact."""
    until = time.monotonic() + for_s
    inexact, count = list(all_rounds), 0
    while inexact and (time.monotonic() < until or count < _FEWEST):
        for rounds in inexact:
            rounds.add()
        count += 1
        if count >= _FEWEST:
            inexact = [each for each in inexact if max(_errors(each.figures())) > _EXACT]


def _errors(figures: Row) -> list[float]:
    return [cost["error"] for cost in figures["costs"].values()]


def middle(values: Sequence[float]) -> Row:
    """The median of independent values, and its standard error by their quartiles, as of a normal distribution."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "error": 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))}


def timed(step: Callable[[], None], steps: int, settling: int = 1) -> float:
    """Seconds a step: so many in a row, after some that are not timed."""
    import torch

    for _ in range(settling):
        step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


@contextmanager
def recorded(way: str) -> Iterator[None]:
    """What runs within is recorded in one of the ways of USUAL, or by `cupti`."""
    import torch

    if way.startswith("torch.profiler"):
        with torch.profiler.profile(with_stack=True, record_shapes=True):
            yield
        return
    from unstall.record.choose import choose
    from unstall.record.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        recorder, clock = choose(Settings(folder, "torch" if way == "torch" else "cupti"))
        if clock is not None:
            clock.start()
        recorder.start()
        try:
            yield
        finally:
            torch.cuda.synchronize()
            recorder.stop()
            if clock is not None:
                clock.stop()


@contextmanager
def host_only() -> Iterator[None]:
    """Of what runs within the host alone is recorded. Raises RuntimeError where that cannot be done."""
    with tempfile.TemporaryDirectory() as folder:
        steps = HostOnly(Path(folder))
        if not steps.start(1):
            raise RuntimeError("the driver's calls cannot be timed here")
        try:
            yield
        finally:
            steps.stop(Journal(folder))


CUPTI: list[tuple[str, Way]] = [
    (DEVICE, partial(recorded, "cupti")),
    *[(HOST, host_only)] * TIMES,
    (NOTHING, nullcontext),
]
TORCH: list[tuple[str, Way]] = [*((way, partial(recorded, way)) for way in USUAL), (NOTHING, nullcontext)]


def summary(costs: Sequence[Row]) -> str:
    """What a window of `cupti` costs, of what it costs each program."""
    ordered = sorted(costs, key=lambda cost: cost["median"])
    middling = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    median = statistics.mean(cost["median"] for cost in middling)
    error = math.hypot(*(cost["error"] for cost in middling)) / len(middling)
    worst = with_error(ordered[-1])
    return f"{WINDOW}: {with_error({'median': median, 'error': error})} in the median of programs, {worst} at worst"


def shown(row: Row) -> str:
    """For people."""
    costs = (f"\n  {way:40s} {with_error(cost)}" for way, cost in row["costs"].items())
    return f"{row['plain_ms']['median']:.2f} ms a step, {row['rounds']} rounds:" + "".join(costs)


def with_error(figure: Row) -> str:
    """A figure and its standard error, for people."""
    return f"{figure['median']:.3f} ± {figure['error']:.3f}"


if __name__ == "__main__":
    sys.exit(main())
