"""Timing for the benchmarks of `unstall.fix`: interleaved rounds on the device's own clock and the host's."""

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
    """torch, or a clean end where it has no CUDA device."""
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
    """Milliseconds of each way, one of each in turn and then in opposite order, after a round that does not count.
    With `most`: up to so many rounds, until the ratio of the last way to the first is known to `error`."""
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
    """Of neighbours: median, its standard error (of two at the least), least and most. The error is by the median
    distance from the median, as for a normal distribution, since a few are far off where the host pauses."""
    each = [one / other for one, other in zip(over, under, strict=True)]
    median = statistics.median(each)
    spread = 1.4826 * statistics.median(abs(one - median) for one in each)
    error = 1.2533 * spread / len(each) ** 0.5 if len(each) > 1 else float("inf")
    return {"median": median, "error": error, "least": min(each), "most": max(each)}


LOADS = {"copy-bound": 0.5, "balanced": 1.0, "compute-bound": 2.0}  # kernels' time over that of a copy


class Kernels:
    """Products of matrices, by which a step takes as long as it should."""

    def __init__(self) -> None:
        import torch

        self._weights = torch.randn(2048, 2048, device="cuda")
        self.run(3)
        self.one_ms = milliseconds(lambda: self.run(20)) / 20

    def run(self, count: int) -> None:
        for _ in range(count):
            self._weights @ self._weights

    def lasting(self, wanted_ms: float) -> int:
        """How many take about as long; one at the least."""
        return max(1, round(wanted_ms / self.one_ms))


def each_ms(run: Callable[[], Any], count: int, rounds: int) -> float:
    """Of one of the `count` things that it does: the median."""
    return statistics.median(milliseconds(run) for _ in range(rounds)) / count


def against_plain(took: dict[str, list[float]], mine: str, last: list[Any], limit_ms: float | None = None) -> Figures:
    """What `interleaved` measured of "plain" and of `mine`, with what the last of these says of itself."""
    figures: Figures = {"plain_ms": statistics.median(took["plain"]), f"{mine}_ms": statistics.median(took[mine])}
    if limit_ms is not None:
        figures["limit_ms"] = limit_ms
        figures["of_the_limit"] = ratio([limit_ms] * len(took[mine]), took[mine])
    return {**figures, "over_plain": ratio(took[mine], took["plain"]), "stats": last[0].stats().text}


class Report:
    """Figures by the name of a case, and whether they are as good as they must be."""

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
        """Prints and keeps them. A goal is of the median where there is one."""
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
        """Exits with 1 where a goal was missed."""
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
