"""Timing for the benchmarks of `unstall.fix`: several ways to do the same take turns, and are timed
by the host until the device is done.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

Figures = dict[str, Any]


def arguments(what: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def needs_gpu() -> Any:
    """Returns the module torch. If it has no CUDA device, says so and exits with 0."""
    try:
        import torch
    except ImportError:
        sys.exit("needs torch")
    if not torch.cuda.is_available():
        print("no CUDA device: nothing measured")
        sys.exit(0)
    return torch


def milliseconds(run: Callable[[], Any]) -> float:
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def interleaved(
    ways: dict[str, Callable[[], Any]], rounds: int, most: int | None = None, error: float = 0.0
) -> dict[str, list[float]]:
    """Times several ways to do the same, in rounds. In each round, each way runs once; every second
    round has the opposite order. The first round does not count.

    Args:
        ways: The ways, by name.
        rounds: The number of rounds.
        most: If given, up to so many rounds are made, until the error of the ratio of the last way
            to the first is no more than `error`.
        error: The standard error of that ratio that is small enough.

    Returns:
        The milliseconds of each way, by round.
    """
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range((most or rounds) + 1):
        if most and turn > rounds and _known(took, error):
            break
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            ms = milliseconds(ways[name])
            if turn:
                took[name].append(ms)
    return took


def _known(took: dict[str, list[float]], error: float) -> bool:
    first, *_, last = took.values()
    return ratio(last, first)["error"] <= error


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Returns the ratios of two ways, round by round: "median", "error", "least" and "most".

    The error is the standard error of the median. It is worked out from the median distance from
    the median, as for a normal distribution, because a few ratios are far off when the host pauses.
    It is infinite for a single round.

    Args:
        over: The times of one way, by round.
        under: The times of the other way.
    """
    each = [one / other for one, other in zip(over, under, strict=True)]
    median = statistics.median(each)
    spread = 1.4826 * statistics.median(abs(one - median) for one in each)
    error = 1.2533 * spread / len(each) ** 0.5 if len(each) > 1 else float("inf")
    return {"median": median, "error": error, "least": min(each), "most": max(each)}


LOADS = {"copy-bound": 0.5, "balanced": 1.0, "compute-bound": 2.0}  # kernels' time over that of a copy


class Kernels:
    """Products of matrices, of which a step runs so many that it takes as long as wanted."""

    def __init__(self) -> None:
        import torch

        self._weights = torch.randn(2048, 2048, device="cuda")
        self.run(3)
        self.one_ms = milliseconds(lambda: self.run(20)) / 20

    def run(self, count: int) -> None:
        for _ in range(count):
            self._weights @ self._weights

    def lasting(self, wanted_ms: float) -> int:
        """Returns how many products take about `wanted_ms` together, at least one."""
        return max(1, round(wanted_ms / self.one_ms))


def each_ms(run: Callable[[], Any], count: int, rounds: int) -> float:
    """Returns how many milliseconds each of the `count` things takes that `run` does. It is the
    median over `rounds` calls of `run`.
    """
    return statistics.median(milliseconds(run) for _ in range(rounds)) / count


def against_plain(took: dict[str, list[float]], mine: str, last: list[Any], limit_ms: float | None = None) -> Figures:
    """Returns the figures of a case: the times of "plain" and `mine`, and their ratio.

    Args:
        took: What `interleaved` returned.
        mine: The name of the way that is compared with "plain".
        last: A list with the object that ran last in that way. Its `stats()` are among the figures.
        limit_ms: The least time that is possible. If given, its ratio to the time of `mine` is
            among the figures.
    """
    figures: Figures = {"plain_ms": statistics.median(took["plain"]), f"{mine}_ms": statistics.median(took[mine])}
    if limit_ms is not None:
        figures["limit_ms"] = limit_ms
        figures["of_the_limit"] = ratio([limit_ms] * len(took[mine]), took[mine])
    return {**figures, "over_plain": ratio(took[mine], took["plain"]), "stats": last[0].stats().text}


class Report:
    """The figures of each case, by the case's name, and whether they meet their goals."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._cases: dict[str, Any] = {}
        self._missed = 0

    def add(
        self,
        name: str,
        figures: dict[str, Any],
        at_least: dict[str, float] | None = None,
        at_most: dict[str, float] | None = None,
    ) -> None:
        """Prints the figures of a case, and writes them to the file of the report, if there is one.

        Args:
            name: The name of the case.
            figures: The figures by name.
            at_least: By the name of a figure, the least that it must be. Of a ratio, it is the
                median that counts.
            at_most: By the name of a figure, the most that it may be.
        """
        goals = {}
        for bounds, sign in ((at_least or {}, 1), (at_most or {}, -1)):
            for key, bound in bounds.items():
                value = figures[key]["median"] if isinstance(figures[key], dict) else figures[key]
                met = sign * value >= sign * bound
                goals[f"{key} {'>=' if sign > 0 else '<='} {bound:g}"] = "met" if met else "missed"
                self._missed += not met
        self._cases[name] = {**figures, "goals": goals}
        print(f"{name}: {_told(figures)}", flush=True)
        for goal, how in goals.items():
            print(f"  {goal}: {how}", flush=True)
        if self._out is not None:  # at once, so that a run that is cut off leaves what it has
            self._write(self._out)

    def finish(self) -> NoReturn:
        """Says how many goals were missed, and exits: with 1 if any was, else with 0."""
        print(f"{self._missed} goals missed" if self._missed else "all goals met")
        sys.exit(1 if self._missed else 0)

    def _write(self, out: Path) -> None:
        import torch

        where = {
            "date": datetime.date.today().isoformat(),
            "gpu": torch.cuda.get_device_name(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cores": os.cpu_count(),
        }
        out.write_text(json.dumps({**where, **self._cases}, indent=1, default=str) + "\n")


def _told(figures: dict[str, Any]) -> str:
    parts = []
    for key, value in figures.items():
        if isinstance(value, dict):
            spread = f"± {value['error']:.3f}, {value['least']:.3f} to {value['most']:.3f}"
            parts.append(f"{key} {value['median']:.3f} ({spread})")
        elif isinstance(value, float):
            parts.append(f"{key} {value:.3f}")
        else:
            parts.append(f"{key} {value}")
    return ", ".join(parts)
