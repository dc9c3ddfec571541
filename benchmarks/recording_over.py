"""Once a recording is over, does a program run as fast as if it had never been recorded? Of real programs on a GPU.

    python -m benchmarks.recording_over [--seconds 240] [--only resnet-18] [--out FILE]

Two processes on one core, each with all programs, of which one waits while the other works, time a few steps of a
program in turns: one, other, other, one, or the other way round, as is drawn. How long the first's take by the other's
is told in four parts: twice before anything was recorded, then when the first process has recorded each program, as
users do by `unstall.record`, and at last when the other has, too. What a recording leaves behind in its process is that
of the third part by the mean of those around it. That of the second by the first tells how far chance goes.

A shared host changes its speed by a tenth within a second, and not that of all cores: hence the one. Programs in which
threads work side by side are slower on it; these have one thread that works at a time. What is left behind would show
first where nothing is done but to launch: such a program comes last. Programs whose figure is exact to 0.1 % after five
rounds of a part rest. Figures are medians with their standard errors.

Wanted: at most 1.01. Needs a CUDA GPU, torchvision and transformers, and says so where there is none.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from benchmarks.recording import EXACT, FEWEST, middle, summary, take_turns, timed, with_error

_STEPS, _SETTLING, _WARMUP = 5, 1, 20
_LONGEST_S = 120  # that a process takes to begin, or to answer
_LAUNCHES = "Nothing but launches"
_PARTS = ("first", "neither", "one", "both")  # of the processes have recorded

Row = dict[str, Any]
Timer = Callable[[], float]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=240.0, help="for all programs")
    parser.add_argument("--only", metavar="NAME", default="", help="programs whose name has this in it")
    parser.add_argument("--out", type=Path, help="where the figures go, as JSON")
    args = parser.parse_args(argv)
    if skipped := why_skipped("torchvision", "transformers"):
        print(skipped)
        return 0
    from benchmarks.recording_programs import chosen

    names = [*chosen(args.only), _LAUNCHES]
    ratios: dict[str, dict[str, list[float]]] = {name: {part: [] for part in _PARTS} for name in names}
    with _processes(names) as (one, other):
        for part in _PARTS:
            for name in names if part in ("one", "both") else ():
                _ask(one if part == "one" else other, "record", name)
            timers = {name: (partial(_ask, one, "time", name), partial(_ask, other, "time", name)) for name in names}
            for name, of_part in in_turns(timers, args.seconds / len(_PARTS)).items():
                ratios[name][part] = of_part
    result: Row = {**measured_on(), "programs": {name: over(parts) for name, parts in ratios.items()}}
    for name, row in result["programs"].items():
        print(f"{name}: {shown(row)}")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    for which in ("over", "chance"):
        print(f"{which}: {summary([row[which] for row in result['programs'].values()])}")
    return 0


class _Pair:
    """Times steps of a program in two processes by turns. `ratios` has, for each round, the time in
    the first process over that in the second.
    """

    def __init__(self, timers: tuple[Timer, Timer], chance: random.Random) -> None:
        self._timers, self._chance = timers, chance
        self.ratios: list[float] = []

    def add(self) -> None:
        """Runs one more round, in which each process times steps twice."""
        first = self._chance.randrange(2)
        took = [0.0, 0.0]
        for which in (first, 1 - first, 1 - first, first):
            took[which] += self._timers[which]()
        self.ratios.append(took[0] / took[1])

    def are_exact(self) -> bool:
        return bool(middle(self.ratios)["error"] <= EXACT)


def in_turns(timers: Mapping[str, tuple[Timer, Timer]], for_s: float) -> dict[str, list[float]]:
    """Times steps of each program in two processes by turns, for `for_s` seconds. Returns, by
    program, the time in the first process over that in the second, for each round.
    """
    chance = random.Random(0)
    pairs = {name: _Pair(pair, chance) for name, pair in timers.items()}
    take_turns(list(pairs.values()), for_s, look=FEWEST)
    return {name: pair.ratios for name, pair in pairs.items()}


def over(ratios: Mapping[str, Sequence[float]]) -> Row:
    """Returns what a recording leaves behind ("over") and how far chance goes ("chance"), each with
    its standard error. `ratios` has the ratios of the two processes for each part of the
    measurement.
    """
    parts = {part: middle(ratios[part]) for part in _PARTS}
    medians = {part: parts[part]["median"] for part in _PARTS}
    errors = {part: parts[part]["error"] / medians[part] for part in _PARTS}
    left = medians["one"] / math.sqrt(medians["neither"] * medians["both"])
    by_chance = medians["neither"] / medians["first"]
    return {
        "rounds": {part: len(ratios[part]) for part in _PARTS},
        **parts,
        "over": {
            "median": left,
            "error": left * math.hypot(errors["one"], errors["neither"] / 2, errors["both"] / 2),
        },
        "chance": {"median": by_chance, "error": by_chance * math.hypot(errors["neither"], errors["first"])},
    }


def shown(row: Row) -> str:
    """Returns the figures of a program as text."""
    parts = ", ".join(f"{part} {with_error(row[part])}" for part in _PARTS)
    told = ", ".join(f"{which} {with_error(row[which])}" for which in ("over", "chance"))
    return f"{told} ({parts}; {min(row['rounds'].values())} rounds)"


@contextmanager
def _processes(names: Sequence[str]) -> Iterator[list[Connection]]:
    """Starts two processes that run steps of the programs `names` when they are asked to, and
    yields the connections to them.
    """
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
            if process.pid is not None:
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
    from benchmarks.recording_programs import PROGRAMS, launches

    steps = {name: {**PROGRAMS, _LAUNCHES: launches}[name]() for name in names}
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
