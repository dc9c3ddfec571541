"""How true the virtual GPU is: real models, run unmodified on it, beside what a real GPU took.

    python -m benchmarks.virtual_models PROGRAM TRUTH.json [--gpu h200] [--json FILE] [--answers FILE]

PROGRAM measures models and writes `$OUT/models_truth.json`: by case, step_ms, host_ms, kernels, copies, gpu_busy_ms and
the allocator's statistics under mem. It is run once, on a virtual GPU that skips numerics; TRUTH is what it wrote on a
real one. Exit code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.on_device import on_virtual

_ALLOCATED, _RESERVED = "allocated_bytes.all.peak", "reserved_bytes.all.peak"


@dataclass(frozen=True)
class Figure:
    """A figure of a case, and how far off it may be.

    Attributes:
        name: The name of the figure.
        most: The largest relative error that it may have in any case.
        median: The largest median error that it may have over all cases; None if there is no such
            limit.
    """

    name: str
    most: float
    median: float | None = None

    def of(self, case: Mapping[str, Any]) -> float:
        match self.name:
            case "ops":
                return float(case["kernels"] + case["copies"])
            case "allocated":
                return float(case["mem"][_ALLOCATED])
            case "reserved":
                return float(case["mem"][_RESERVED])
        return float(case[self.name])


FIGURES = (
    Figure("gpu_busy_ms", 0.20, 0.10),
    Figure("ops", 0.05),
    Figure("allocated", 0.01),
    Figure("reserved", 0.05),
    Figure("host_ms", 0.50),
    Figure("step_ms", 0.50),
)


def main() -> int:
    args = _parse()
    truth = _cases(json.loads(args.truth.read_text()))
    answers = json.loads(args.answers.read_text()) if args.answers else run(args.program, args.gpu)
    told = _cases(answers)
    rows = {case: compare(told[case], truth[case]) for case in truth if case in told}
    print(table(rows))
    for case in sorted(set(truth) - set(told)):
        print(f"{case}: did not run")
    missed = misses(rows)
    for line in missed:
        print(line)
    if args.json:
        args.json.write_text(json.dumps({"errors": rows, "missed": missed}, indent=1, sort_keys=True) + "\n")
    return 1 if missed or set(truth) - set(told) else 0


def run(program: Path, gpu: str) -> dict[str, Any]:
    """Runs `program` on a virtual GPU, and returns the figures that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(on_virtual(gpu, str(program)), check=True, env=os.environ | {"OUT": folder}, stdout=sys.stderr)
        answers: dict[str, Any] = json.loads((Path(folder) / "models_truth.json").read_text())
        return answers


def compare(told: Mapping[str, Any], truth: Mapping[str, Any]) -> dict[str, float]:
    """Returns the relative error of each figure of a case, by its name. For times of the host and
    of a step, it is by how much the slower one is slower: positive if that is the virtual GPU.

    Args:
        told: The figures on the virtual GPU.
        truth: The figures on the real GPU.
    """
    errors = {}
    for figure in FIGURES:
        ratio = figure.of(told) / figure.of(truth)
        errors[figure.name] = ratio - 1 if ratio >= 1 or figure.name not in ("host_ms", "step_ms") else 1 - 1 / ratio
    return errors


def misses(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns a sentence for each figure that is further off than it may be. `rows` has, by case,
    the relative errors by figure.
    """
    lines: list[str] = []
    for figure in FIGURES:
        lines.extend(
            f"{case}: {figure.name} is {errors[figure.name]:+.1%} off, more than {figure.most:.0%}"
            for case, errors in rows.items()
            if abs(errors[figure.name]) > figure.most
        )
        middle = statistics.median(abs(errors[figure.name]) for errors in rows.values()) if rows else 0.0
        if figure.median is not None and middle > figure.median:
            lines.append(f"{figure.name}: the median is {middle:.1%} off, more than {figure.median:.0%}")
    return lines


def table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a table with a line for each case, and a last line with the medians of the absolute
    errors. `rows` has, by case, the relative errors by figure.
    """
    lines = [" ".join((f"{'':28}", *(f"{figure.name:>12}" for figure in FIGURES)))]
    for case, errors in rows.items():
        lines.append(" ".join((f"{case:28}", *(f"{errors[figure.name]:+12.1%}" for figure in FIGURES))))
    if rows:
        medians = [statistics.median(abs(errors[figure.name]) for errors in rows.values()) for figure in FIGURES]
        lines.append(" ".join((f"{'median':28}", *(f"{median:12.1%}" for median in medians))))
    return "\n".join(lines)


def _cases(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: case for name, case in document.items() if isinstance(case, dict) and "kernels" in case}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--gpu", default="h200", help="the virtual GPU (default: h200)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the errors to FILE")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="what the program wrote before, instead of running it"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
