"""Timing for the benchmarks of `unstall.fix`: interleaved rounds on the device's own clock and the host's."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def arguments(what: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--rounds", type=int, default=5)
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


def interleaved(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each way, one of each in turn, after a first round that does not count."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, run in ways.items():
            ms = milliseconds(run)
            if turn:
                took[name].append(ms)
    return took


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Of neighbours: median, least and most."""
    each = [one / other for one, other in zip(over, under, strict=True)]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}


def told(name: str, figures: dict[str, Any]) -> None:
    parts = []
    for key, value in figures.items():
        if isinstance(value, dict):
            parts.append(f"{key} {value['median']:.3f} ({value['least']:.3f} to {value['most']:.3f})")
        elif isinstance(value, float):
            parts.append(f"{key} {value:.3f}")
    print(f"{name}: " + ", ".join(parts), flush=True)


def written(out: Path | None, results: dict[str, Any]) -> None:
    import torch

    whole = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, **results}
    if out is not None:
        out.write_text(json.dumps(whole, indent=1, default=str) + "\n")
