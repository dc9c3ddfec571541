"""Once a recording is over, does a program run as fast as if it had never been recorded? Of real programs on a GPU.

    python -m benchmarks.recording_over [--seconds 240] [--only resnet-18] [--out FILE]

Of each program there are two processes on one core, of which one waits while the other works. They time a few steps in
turns: first both have never recorded, then one records a window. The figure is how long its steps take by those of the
other before and after them, behind the recording by before it, as medians with their standard error.
So a host that changes its speed by a tenth within a second changes that of both, and what a first recording leaves
behind for good shows too. Needs a CUDA GPU, torchvision and transformers, and says so where there is none.

Held to the figures: behind is at most 1.01 of before.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.on_device import measured_on, why_skipped
from benchmarks.recording import STEPS, host_only, middle, recorded, timed, with_error
from unstall.record.host_only import TIMES

_FEWEST = 5  # rounds
_STARTS_S = 120  # what a process may take until its program runs

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

    names = list(chosen(args.only))
    result: Row = {**measured_on(), "steps": STEPS, "programs": {}}
    for name in names:
        with _process(name) as recording, _process(name) as other:
            row = over(
                lambda: _ask(recording, "time"),
                lambda: _ask(other, "time"),
                lambda: _ask(recording, "record"),
                args.seconds / len(names),
            )
        result["programs"][name] = row
        print(f"{name}: {shown(row)}", flush=True)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"behind a recording by before: {with_error(of_all([row['share'] for row in result['programs'].values()]))}")
    return 0


def over(recording: Timer, other: Timer, record: Callable[[], object], for_s: float) -> Row:
    """Rounds before `record` and behind it, for as long each."""
    before = in_turns(recording, other, for_s / 2)
    record()
    behind = in_turns(recording, other, for_s / 2)
    first, then = middle(before), middle(behind)
    share = then["median"] / first["median"]
    error = share * math.hypot(first["error"] / first["median"], then["error"] / then["median"])
    return {
        "rounds": [len(before), len(behind)],
        "before": first,
        "behind": then,
        "share": {"median": share, "error": error},
    }


def in_turns(recording: Timer, other: Timer, for_s: float) -> list[float]:
    """What the steps of one process take by the mean of the other's before and behind."""
    ratios: list[float] = []
    until, before = time.monotonic() + for_s, other()
    while time.monotonic() < until or len(ratios) < _FEWEST:
        took, behind = recording(), other()
        ratios.append(2 * took / (before + behind))
        before = behind
    return ratios


def of_all(figures: list[Row]) -> Row:
    """The mean of figures of one thing, each counted by how exact it is."""
    weights = [figure["error"] ** -2 for figure in figures]
    mean = sum(weight * figure["median"] for weight, figure in zip(weights, figures, strict=True)) / sum(weights)
    return {"median": mean, "error": sum(weights) ** -0.5}


def shown(row: Row) -> str:
    """For people."""
    told = {which: with_error(row[which]) for which in ("before", "behind", "share")}
    return (
        f"by the process that never records {told['before']} before a recording, {told['behind']} behind; "
        f"one by the other {told['share']} ({row['rounds'][0]} and {row['rounds'][1]} rounds)"
    )


@contextmanager
def _process(name: str) -> Iterator[Connection]:
    """A process that runs this program's steps when it is asked to."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_work, args=(name, there), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_STARTS_S):
            raise TimeoutError(f"{name} has not begun within {_STARTS_S} s")
        here.recv()
        yield here
    finally:
        here.close()
        process.join(10)
        process.kill()


def _ask(process: Connection, what: str) -> float:
    process.send(what)
    return float(process.recv())


def _work(name: str, asked: Connection) -> None:
    # Both on the same one: which of the host's cores are slowed by what else runs there changes by the second.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.recording_programs import PROGRAMS

    step = PROGRAMS[name]()
    timed(step, 4 * STEPS)
    asked.send(0)
    while True:
        try:
            what = asked.recv()
        except EOFError:
            return
        if what == "record":
            for part, steps in ((recorded("cupti"), STEPS), (host_only(), TIMES * STEPS)):
                with part:
                    timed(step, steps)
        asked.send(timed(step, STEPS))


if __name__ == "__main__":
    sys.exit(main())
