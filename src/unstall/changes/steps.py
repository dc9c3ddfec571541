"""Compares the step times of two runs, and the parts of a step's time: busy by kind of work, idle by cause."""

from __future__ import annotations

from unstall.changes.result import Account, Time
from unstall.changes.spread import noise
from unstall.diagnose.run import Run
from unstall.result import BUSY_PARTS, IDLE_CAUSES


def step_time(a: Run, b: Run) -> Time:
    """Returns the mean step time of each of two runs, and how large their difference may be by
    chance (the noise). The noise is estimated from the lengths of the steps.
    """
    deviation = sum(float(((own := run.step_lengths) - own.mean()).__pow__(2).sum()) for run in (a, b))
    return Time(a=a.per_step(a.wall), b=b.per_step(b.wall), noise=noise(deviation, len(a.steps), len(b.steps)))


def accounts(a: Run, b: Run) -> tuple[Account, ...]:
    """Returns the parts of a step's time in two runs: busy parts first, then idle parts. Leaves out
    parts that both runs lack.
    """
    parts = [
        *(Account(key=key, kind="busy", time_ns=_both(a, b, "busy_ns", key)) for key in BUSY_PARTS),
        *(Account(key=key, kind="idle", time_ns=_both(a, b, "idle_ns", key)) for key in IDLE_CAUSES),
    ]
    return tuple(part for part in parts if part.time_ns.a or part.time_ns.b)


def _both(a: Run, b: Run, kind: str, key: str) -> Time:
    values = [run.per_step(getattr(getattr(run.accounts, kind), key)) for run in (a, b)]
    return Time(a=values[0], b=values[1])
