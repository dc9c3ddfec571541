"""How fast programs are replayed, by the engine in C and by its twin in Python.

Usage: PYTHONPATH=tests python -P benchmarks/replay.py [TRACE …] [--instructions N] [--rounds N] [--out FILE]

Replays the program of each trace, a random one of N instructions, and one with many waits for devices of 4,000
streams. In a round each engine replays the program for a while; rounds are interleaved, so that whatever else the
machine does strikes both alike, and a ratio is of two neighbours. The median is given, with the least and the
largest. Checking the columns is part of what is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from replay.invented import random_program
from replay.running import with_columns

import unstall
from unstall.diagnose.analyse import analyse
from unstall.replay.build import build
from unstall.replay.engine import ENGINES
from unstall.replay.program import Code, Program

_RESULTS = Path(__file__).parent / "results"
_LEAST_S = 0.05  # of an engine in a round


@dataclass(frozen=True)
class Comparison:
    """What was measured on one program.

    Attributes:
        program: The name of the program.
        instructions: The number of its instructions.
        ops: The number of its device ops.
        streams: The number of its streams.
        per_second: By engine, how many instructions it replayed per second in each round.
        ratios: For each round, the speed of the engine in C over that in Python.
    """

    program: str
    instructions: int
    ops: int
    streams: int
    per_second: dict[str, list[float]]
    ratios: list[float]


def compare(name: str, program: Program, rounds: int) -> Comparison:
    count = len(program.instructions)
    per_second: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine, replay in ENGINES.items():
            replays, begun = 0, time.perf_counter()
            while (took := time.perf_counter() - begun) < _LEAST_S or not replays:
                replay(program)
                replays += 1
            per_second[engine].append(round(replays * count / took))
    ratios = [round(c / python, 1) for c, python in zip(per_second.get("c", []), per_second["python"], strict=False)]
    return Comparison(name, count, len(program.ops), len(program.device_of_stream), per_second, ratios)


def of_trace(path: Path) -> Program:
    timeline = unstall.load(path)
    steps = analyse(timeline).steps
    return build(timeline, steps.start, steps.end)


def full_of_waits(count: int) -> Program:
    """Returns a program of `count` instructions with 4,000 streams. One instruction in ten waits
    for one device, or for all.
    """
    program = random_program(count, streams=4000)
    do = program.instructions
    spare = np.isin(do.code, (Code.CALL, Code.STREAM_WAIT, Code.SYNC_EVENT, Code.SYNC_STREAM))
    code, stream = do.code.copy(), do.stream.copy()
    rows = np.flatnonzero(spare)[::2]
    code[rows], stream[rows] = Code.SYNC_DEVICE, rows % 3 - 1
    return with_columns(program, instructions_code=code, instructions_stream=stream)


def table(comparison: Comparison) -> Iterator[str]:
    yield (
        f"{comparison.program}: {comparison.instructions:,} instructions, {comparison.ops:,} ops, "
        f"{comparison.streams:,} streams"
    )
    for engine, figures in comparison.per_second.items():
        yield f"  {engine:<8}{spread([figure / 1e6 for figure in figures]):>28} million instructions a second"
    if comparison.ratios:
        yield f"  {'ratio':<8}{spread(comparison.ratios):>28}"


def spread(figures: Sequence[float]) -> str:
    return f"{median(figures):.3g} ({min(figures):.3g} to {max(figures):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--instructions", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--out", type=Path, default=_RESULTS / "replay.json", metavar="FILE")
    args = parser.parse_args()
    comparisons = []
    for trace in args.traces:
        comparisons.append(compare(trace.name, of_trace(trace), args.rounds))
        print("\n".join(table(comparisons[-1])), flush=True)
    comparisons.append(compare("random", random_program(args.instructions), args.rounds))
    print("\n".join(table(comparisons[-1])), flush=True)
    comparisons.append(compare("full of waits", full_of_waits(args.instructions // 50), args.rounds))
    print("\n".join(table(comparisons[-1])), flush=True)
    machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({**machine, "comparisons": [asdict(c) for c in comparisons]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
