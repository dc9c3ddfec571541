"""What recording costs: step times of real programs on a GPU, by those of their neighbours without recording.

    python -m benchmarks.recording [--seconds 300] [--only resnet-18] [--out benchmarks/results/recording_h200.json]

A shared host changes its speed by a tenth within a second, so what is compared is short, and next to each other. A
round of `cupti` is five recorded steps between steps without, after one in which the recorder warms up. In each round
as many steps without recording stand between such, too: their "cost" shows how far chance goes. Programs take turns,
round by round; those whose figures are exact to 0.1 % after ten rest. Then come rounds of what torch records: with its
profiler CUPTI stays.

Figures are medians of the rounds, with standard errors. "Left behind" is what steps take behind by those before. What
stays for good from a first recording on is in none of them: that is for `recording_over`.

Needs a CUDA GPU, torchvision and transformers, and says so where there is none.
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
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks.on_device import measured_on, why_skipped

Row = dict[str, Any]
Steps = Callable[[int, int], float]
"""A function of two numbers, `steps` and `settling`. It runs `settling` steps, and then `steps`
steps. Returns how many seconds one of the latter took.
"""
Way = Callable[[Steps], dict[str, float]]
"""A function of `Steps` that runs steps, of which something may be recorded. Returns how many
seconds one took, by the name of what was recorded.
"""

CUPTI, NOTHING = "cupti", "nothing"
PROFILER = "torch.profiler with stacks and shapes"
BEHIND = "left behind by "
_STEPS, _SETTLING = 5, 1
_PLAIN_STEPS, _PLAIN_SETTLING = 5, 3
_WARMUP = 10
FEWEST, LOOK = 5, 10  # rounds: there are, and after which those rest that are exact
EXACT = 0.001


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
    result: Row = {**measured_on(), "programs": {name: {} for name in steps}}
    shares = {recorder: share for recorder, share in (("cupti", 0.8), ("torch", 0.2)) if recorder in args.recorders}
    for recorder, share in shares.items():
        rounds = {name: Rounds(partial(timed, step), WAYS[recorder], name) for name, step in steps.items()}
        take_turns(list(rounds.values()), args.seconds * share / sum(shares.values()))
        for name, each in rounds.items():
            figures = each.figures()
            result["programs"][name][recorder] = figures
            print(f"{name}, {shown(figures)}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    if "cupti" in args.recorders:
        print(f"{CUPTI}: {summary([each['cupti']['costs'][CUPTI] for each in result['programs'].values()])}")
    return 0


class Rounds:
    """Times steps of one program: in each round once in each way, and between the ways without
    recording. The figure of a way is its time over the mean of the plain times right before and
    after it.
    """

    def __init__(self, steps: Steps, ways: Sequence[tuple[str, Way]], seed: str) -> None:
        """Runs some steps, so that the program is warm, and times some plain ones.

        Args:
            steps: Runs and times steps of the program.
            ways: The ways, each with its name.
            seed: The seed for the order of the ways in each round.
        """
        self._steps, self._ways = steps, ways
        self._chance = random.Random(seed)
        self._ratios: dict[str, list[float]] = {}
        self._plain: list[float] = []
        steps(1, _WARMUP)
        self._before_all = statistics.median(self._without() for _ in range(5))

    def add(self) -> None:
        """Runs one more round: each way once, in a random order."""
        before = self._without()
        for name, way in self._chance.sample(self._ways, len(self._ways)):
            parts = way(self._steps)
            behind = self._without()
            for part, took in parts.items():
                self._ratios.setdefault(part, []).append(2 * took / (before + behind))
            self._ratios.setdefault(BEHIND + name, []).append(behind / before)
            before = behind

    def _without(self) -> float:
        self._plain.append(self._steps(_PLAIN_STEPS, _PLAIN_SETTLING))
        return self._plain[-1]

    def figures(self) -> Row:
        """Returns the figures of all rounds so far. There must be at least two."""
        ordered = sorted(self._ratios, key=lambda part: (part.startswith(BEHIND), part.endswith(NOTHING), part))
        return {
            "rounds": len(next(iter(self._ratios.values()))),
            "plain_ms": {"before all": 1e3 * self._before_all, "median": 1e3 * statistics.median(self._plain)},
            "costs": {part: middle(self._ratios[part]) for part in ordered},
        }

    def are_exact(self) -> bool:
        """Returns whether the standard errors of all figures are at most EXACT."""
        return all(cost["error"] <= EXACT for cost in self.figures()["costs"].values())


class OfOne(Protocol):
    """Something that is measured in rounds and takes turns with others, such as the `Rounds` of one
    program.
    """

    def add(self) -> None:
        """Runs one more round."""

    def are_exact(self) -> bool:
        """Returns whether the rounds so far are enough."""


def take_turns(of_all: Sequence[OfOne], for_s: float, look: int = LOOK) -> None:
    """Adds rounds to each of several things by turns, until the time is up.

    Args:
        of_all: The things that are measured.
        for_s: The time in seconds.
        look: After so many rounds, those that are exact get no more.
    """
    until = time.monotonic() + for_s
    turns, count = list(of_all), 0
    while turns and (time.monotonic() < until or count < FEWEST):
        for each in turns:
            each.add()
        count += 1
        if count == look:  # once: who looks again and again stops where chance looks exact
            turns = [each for each in turns if not each.are_exact()]


def middle(values: Sequence[float]) -> Row:
    """Returns the median of independent values, and its standard error, which is worked out from
    their quartiles as for a normal distribution.
    """
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": median, "error": 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))}


def timed(step: Callable[[], None], steps: int, settling: int) -> float:
    """Runs `settling` steps, and then `steps` steps. Returns how many seconds one of the latter
    took.
    """
    import torch

    for _ in range(settling):
        step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def _nothing(steps: Steps) -> dict[str, float]:
    return {NOTHING: steps(_STEPS, _SETTLING)}


def _with(way: str, steps: Steps) -> dict[str, float]:
    with recorded(way):
        return {way: steps(_STEPS, _SETTLING)}


WAYS: dict[str, Sequence[tuple[str, Way]]] = {
    "cupti": ((CUPTI, partial(_with, CUPTI)), (NOTHING, _nothing)),
    "torch": (*((way, partial(_with, way)) for way in ("torch", PROFILER)), (NOTHING, _nothing)),
}


@contextmanager
def recorded(way: str) -> Iterator[None]:
    """Records the block: by the recorder "cupti" or "torch", or, for PROFILER, by torch.profiler
    alone.
    """
    import torch

    if way == PROFILER:
        with torch.profiler.profile(with_stack=True, record_shapes=True):
            yield
        return
    from unstall.recording.choose import choose
    from unstall.recording.settings import Settings

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


def summary(figures: Sequence[Row]) -> str:
    """Returns a text with the median of the programs' figures, and the worst."""
    ordered = sorted(figures, key=lambda figure: figure["median"])
    middling = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    median = statistics.mean(figure["median"] for figure in middling)
    error = math.hypot(*(figure["error"] for figure in middling)) / len(middling)
    worst = with_error(ordered[-1])
    return f"{with_error({'median': median, 'error': error})} in the median of programs, {worst} at worst"


def shown(row: Row) -> str:
    """Returns the figures of a program as text."""
    costs = (f"\n  {way:60s} {with_error(cost)}" for way, cost in row["costs"].items())
    return f"{row['plain_ms']['median']:.2f} ms a step, {row['rounds']} rounds:" + "".join(costs)


def with_error(figure: Row) -> str:
    """Returns a figure and its standard error as text."""
    return f"{figure['median']:.3f} ± {figure['error']:.3f}"


if __name__ == "__main__":
    sys.exit(main())
