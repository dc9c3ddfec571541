"""Detects steps that take far more or less time than the other steps, such as steps with an evaluation or a first use.
If a run has steps of unusual length, the mean step time describes no step."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import duration
from unstall.timeline.columns import I64

_LONG = 2  # times the usual step
_NOTABLE = 0.1  # of the window: the time by which these steps differ from the usual step
_ALIKE = 1.25  # times the shortest: the longest of steps that their mean describes


def of_long_steps(run: Run) -> str | None:
    """Returns a sentence on steps of unusual length: how many there are, and the time that they
    take.

    Returns None if no step has an unusual length, or if the unusual steps hardly change the total
    time.
    """
    lengths = run.step_lengths
    # Of two steps, neither is the usual one: compare the longer with the shorter.
    usual = float(np.median(lengths) if len(lengths) > 2 else lengths.min())
    long, short = lengths > _LONG * usual, lengths * _LONG < usual
    odd = long | short
    if np.abs(lengths - usual)[odd].sum() < max(_NOTABLE * run.wall, 1):
        return None
    if long.any() and short.any():
        shortest, longest = duration(int(lengths.min())), duration(int(lengths.max()))
        many = (
            f"The {len(lengths)} steps take from {shortest} to {longest}, half of them {duration(round(usual))} or less"
        )
    else:
        count, others = int(odd.sum()), "other" if len(lengths) - odd.sum() == 1 else "others"
        take = f"takes {_range(lengths[odd])}" if count == 1 else f"take {_range(lengths[odd])} each"
        which = "The first" if count == 1 and odd[0] else str(count)
        many = f"{which} of {len(lengths)} steps {take}, the {others} {_range(lengths[~odd])}"
    return f"{many}: figures per step are the mean of all steps."


def _range(lengths: I64) -> str:
    """Returns what steps of the given lengths in ns take: the mean if they are alike, else the shortest and the
    longest.
    """
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > _ALIKE * shortest:
        return f"{duration(shortest)} to {duration(longest)}"
    return duration(round(float(lengths.mean())))
