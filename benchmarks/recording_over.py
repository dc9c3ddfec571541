"""Once a recording is over, does a program run as fast as if it had never been recorded? Of real programs on a GPU.

    python -m benchmarks.recording_over [--seconds 150] [--only resnet-18] [--out FILE]

There are two processes on one core, each with all programs, of which one waits while the other works. They time a few
steps of a program in turns, in three parts. Before the last one the first process records each program, as users do by
`unstall.record`; the other never does. How long steps of the first take by those of the other before and behind them,
in the last part by the part before it: that is what a recording leaves behind, if it is the process's own. The same of
the second part by the first, when nothing has been recorded yet, tells how far chance goes. Figures are medians; their
standard errors are told by those of five rounds each, as neighbours share a time.

A shared host changes its speed by a tenth within a second, and not that of all cores: hence the one. Programs in which
threads work side by side are slower on it; these have one thread that works at a time.

Wanted: at most 1.01. Needs a CUDA GPU, torchvision and transformers, and says so where there is none.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from benchmarks.recording import middle, summary, timed, with_error

_STEPS, _SETTLING, _WARMUP = 5, 1, 20
_TOGETHER = 5  # rounds, for a value that neighbours do not share
_FEWEST = 4 * _TOGETHER  # rounds of a part
_LONGEST_S = 120  # that a process takes to begin, or to answer
_PARTS = ("first", "before", "behind")

Row = dict[str, Any]
Timer = Callable[[], float]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=150.0, help="for all programs")
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped("torchvision", "transformers"):
        print(skipped)
        return 0
    from benchmarks.recording_programs import chosen

    names = list(chosen(args.only))
    for_s = args.seconds / len(_PARTS) / len(names)
    ratios: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    with _processes(names) as (recording, other):
        for part in _PARTS:
            for name in names if part == "behind" else ():
                _ask(recording, "record", name)
            for name in names:
                ratios[name][part] = in_turns(
                    partial(_ask, recording, "time", name), partial(_ask, other, "time", name), for_s
                )
    result: Row = {**measured_on(), "programs": {name: over(**parts) for name, parts in ratios.items()}}
    for name, row in result["programs"].items():
        print(f"{name}: {shown(row)}")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    for which in ("over", "chance"):
        print(f"{which}: {summary([row[which] for row in result['programs'].values()])}")
    return 0


def in_turns(recording: Timer, other: Timer, for_s: float) -> list[float]:
    """What the steps of one process take by the mean of the other's before and behind, for so long."""
    ratios: list[float] = []
    until, before = time.monotonic() + for_s, other()
    while time.monotonic() < until or len(ratios) < _FEWEST:
        took, behind = recording(), other()
        ratios.append(2 * took / (before + behind))
        before = behind
    return ratios


def over(first: Sequence[float], before: Sequence[float], behind: Sequence[float]) -> Row:
    """What the ratios of three parts say: what the recording leaves behind, and what chance does."""
    parts = {part: _middle(ratios) for part, ratios in zip(_PARTS, (first, before, behind), strict=True)}
    return {
        "rounds": [len(first), len(before), len(behind)],
        **parts,
        "over": _share(parts["behind"], parts["before"]),
        "chance": _share(parts["before"], parts["first"]),
    }


def _middle(ratios: Sequence[float]) -> Row:
    starts = range(0, len(ratios) - _TOGETHER + 1, _TOGETHER)
    return middle([statistics.median(ratios[start : start + _TOGETHER]) for start in starts])


def _share(one: Row, other: Row) -> Row:
    share = one["median"] / other["median"]
    return {"median": share, "error": share * math.hypot(*(each["error"] / each["median"] for each in (one, other)))}


def shown(row: Row) -> str:
    """For people."""
    parts = ", ".join(f"{part} {with_error(row[part])}" for part in _PARTS)
    rounds = ", ".join(map(str, row["rounds"]))
    return f"over {with_error(row['over'])}, chance {with_error(row['chance'])} ({parts}; {rounds} rounds)"


@contextmanager
def _processes(names: Sequence[str]) -> Iterator[list[Connection]]:
    """Two that run steps of these programs when they are asked to."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(2)]
    processes = [spawn.Process(target=_work, args=(names, there), daemon=True) for _, there in pipes]
    try:
        for process, (_, there) in zip(processes, pipes, strict=True):
            process.start()
            there.close()
        for here, _ in pipes:
            _answer(here)
        yield [here for here, _ in pipes]
    finally:
        for process, (here, _) in zip(processes, pipes, strict=True):
            here.close()
            process.kill()
            process.join()


def _ask(process: Connection, what: str, name: str) -> float:
    process.send((what, name))
    return _answer(process)


def _answer(process: Connection) -> float:
    if not process.poll(_LONGEST_S):
        raise TimeoutError(f"a process has said nothing for {_LONGEST_S} s")
    return float(process.recv())


def _work(names: Sequence[str], asked: Connection) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import unstall
    from benchmarks.recording_programs import PROGRAMS

    steps = {name: PROGRAMS[name]() for name in names}
    for step in steps.values():
        timed(step, 1, _WARMUP)
    asked.send(0)
    while True:
        try:
            what, name = asked.recv()
        except EOFError:
            return
        step = steps[name]
        if what == "record":
            enough = 60 + round(1.5 / timed(step, _STEPS, _SETTLING))  # and what is timed before and after
            with unstall.record(steps=5, recorder="cupti"):
                for _ in range(enough):
                    step()
                    unstall.step()
        asked.send(timed(step, _STEPS, _SETTLING))


if __name__ == "__main__":
    sys.exit(main())
