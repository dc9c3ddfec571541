"""A few steps that take far longer, as one with an evaluation does: what is said of a step is then true of none."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import duration
from unstall.timeline import I64

_LONG = 2  # times as long as the median step
_FEWEST = 4  # steps, of which one is told from the others
_NOTABLE = 0.1  # of the window: how much shorter it would be with them as long as the median step


def of_long_steps(run: Run) -> str | None:
    """How many they are and what they take; None where there are none, or they make up little of the time."""
    if len(run.steps) < _FEWEST:
        return None
    lengths = _lengths(run)
    usual = float(np.median(lengths))
    long = lengths > _LONG * usual
    if (lengths[long] - usual).sum() < max(_NOTABLE * run.wall, 1):
        return None
    count = int(long.sum())
    one, others = (duration(round(float(lengths[chosen].mean()))) for chosen in (long, ~long))
    take = f"takes {one}" if count == 1 else f"take {one} each"
    return f"{count} of {len(lengths)} steps {take}, the others {others}: what is said of a step is the mean of all."


def _lengths(run: Run) -> I64:
    """By step: ns from the end of the one before it, the first from the window's start.

    A step ends once the device has done what was launched in it: that a host which runs ahead waits in every tenth
    makes none of them longer.
    """
    steps, device = run.steps, run.timeline.device
    rows = np.flatnonzero(device.launch >= 0)
    of = np.searchsorted(steps.start, run.timeline.host.start[device.launch[rows]], side="right") - 1
    rows, of = rows[of >= 0], of[of >= 0]
    ends = steps.end.copy()
    np.maximum.at(ends, of, device.end[rows])
    ends = np.minimum(np.maximum.accumulate(ends), steps.window_end)
    return np.diff(ends, prepend=steps.window_start)
