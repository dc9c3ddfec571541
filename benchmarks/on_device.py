"""What the benchmarks of a GPU share: the reason why they cannot run, what their figures are of,
and how a program runs on a virtual GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def why_skipped(*packages: str) -> str | None:
    """Returns why a benchmark cannot run: a package that is missing, or a CUDA device. Returns None
    if nothing is missing.
    """
    missing = [name for name in ("torch", *packages) if find_spec(name) is None]
    if missing:
        return f"skipped: it needs {', '.join(missing)}"
    import torch

    return None if torch.cuda.is_available() else "skipped: there is no CUDA device"


def measured_on() -> dict[str, object]:
    """Returns the device, the versions and the day, which say what figures are of."""
    import torch

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def on_virtual(gpu: str, *program: str, numerics: str = "skip") -> list[str]:
    """Returns the command that runs a program on a virtual GPU, which by default does not compute the values
    of large tensors.
    """
    return [sys.executable, "-W", "ignore", "-m", "unstall.virtual", "--gpu", gpu, "--numerics", numerics, *program]


def comparing(about: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of a benchmark that runs on a real GPU and on a virtual
    one, and compares the figures. `about` is the documentation of the benchmark.
    """
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--against", type=Path, help="the results of real GPUs, to compare with")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    return parser


def machines(path: Path | None) -> list[dict[str, Any]]:
    """Returns what was measured on each machine: a file of results has the figures of one, or a list. None has none."""
    found = json.loads(path.read_text()) if path else []
    return found if isinstance(found, list) else [found]


def agreement(found: Mapping[str, float], real: Sequence[Mapping[str, float]], limit: float) -> str:
    """Returns how many figures are within a factor of 1 + `limit` of those of each real machine and of their median,
    how many of these machines' own figures are as near to each other, and how many figures lie between theirs.

    Args:
        found: Figures by name.
        real: For each real machine, its figures by name. It may lack some.
        limit: By how much figures may differ, as a share of the smaller one.
    """

    def near(names: Iterable[str], *of: Mapping[str, float]) -> str:
        rows = [[each[name] for each in of] for name in names]
        return f"{sum(max(row) <= min(row) * (1 + limit) for row in rows)} of {len(rows)}"

    real = [of for of in real if found.keys() & of.keys()]
    counts = [near(found.keys() & of.keys(), found, of) for of in real]
    shared = found.keys() & set.intersection(*(set(of) for of in real))
    said = f"{', '.join(counts)} within {limit:.0%}"
    if len(real) < 2:
        return said
    middle = {name: statistics.median([of[name] for of in real]) for name in shared}
    of_middle, of_each_other = near(shared, found, middle), near(shared, *real)
    between = sum(min(of[name] for of in real) <= found[name] <= max(of[name] for of in real) for name in shared)
    return (
        f"{said}; of their median: {of_middle}; the real machines of each other: {of_each_other}; "
        f"between the real machines: {between} of {len(shared)}"
    )


def step_ms(step: Callable[[], object], *, steps: int, rounds: int) -> float:
    """Returns the median time of a step in ms, over rounds of `steps` steps that end with a wait for the device."""
    import torch

    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / steps * 1e3)
    return statistics.median(times)


def host_ns(calls: Sequence[Callable[[], object]], *, times: int, rounds: int, warm_up: int) -> float:
    """Returns the median time that the host takes for these calls, one after the other, in ns: over rounds of so many
    `times`, without a wait for the device at their end. `warm_up` times come before.
    """
    import torch

    def run(count: int) -> None:
        for _ in range(count):
            for call in calls:
                call()

    run(warm_up)
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        run(times)
        found.append((time.perf_counter_ns() - begin) / times)
    return statistics.median(found)


def tell(about: str | None, figures: Callable[[], Mapping[str, object]]) -> None:
    """Runs a benchmark that only measures. Prints its figures as JSON, with the device and the
    versions, and writes them to the file of the option `--out`. Without a CUDA device, says why
    there are no figures.

    Args:
        about: The documentation of the benchmark.
        figures: A function that returns the figures.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE")
    out = parser.parse_args().out
    if skipped := why_skipped():
        print(skipped)
        return
    text = json.dumps({**measured_on(), **figures()}, indent=1)
    print(text)
    if out:
        out.write_text(text + "\n")
