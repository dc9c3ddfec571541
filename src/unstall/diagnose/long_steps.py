"""Detects a few steps that take far longer than the rest, such as those with an evaluation. A mean then describes no
step."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import duration

_LONG = 2  # times the median step
_FEWEST = 4  # steps; with fewer, no step stands out
_NOTABLE = 0.1  # of the window: the time saved if these steps took as long as the median step


def of_long_steps(run: Run) -> str | None:
    """Returns a sentence on the number and length of the long steps; None if there are none, or they take little
    time."""
    if len(run.steps) < _FEWEST:
        return None
    lengths = run.step_lengths
    usual = float(np.median(lengths))
    long = lengths > _LONG * usual
    if (lengths[long] - usual).sum() < max(_NOTABLE * run.wall, 1):
        return None
    count = int(long.sum())
    one, others = (duration(round(float(lengths[chosen].mean()))) for chosen in (long, ~long))
    take = f"takes {one}" if count == 1 else f"take {one} each"
    return f"{count} of {len(lengths)} steps {take}, the others {others}: figures per step are the mean of all steps."
