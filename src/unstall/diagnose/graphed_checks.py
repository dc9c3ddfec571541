"""What `unstall.graphed` did while it was recorded to find out what a function does, and to prove its capture: once."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.intervals import Intervals
from unstall.diagnose.run import Run
from unstall.figures import share
from unstall.locate.kinds import named
from unstall.timeline.columns import HostKind

CHECKING = ("_capture", "_observe", "_checked")
"""Methods of `GraphServer` that examine, capture and verify a function, and serve no call."""

_FRAME = re.compile(rf"(.*/)?unstall/fix/graphs/serving\.py\(\d+\): (\w+\.)*({'|'.join(CHECKING)})$")
_WORTH = 0.01  # of the window


def note_of_checks(run: Run) -> str | None:
    """A sentence, where it took a part of the window; None where it did not, or its frames were not recorded."""
    timeline, host = run.timeline, run.timeline.host
    rows = np.flatnonzero((host.kind == HostKind.PYTHON) & named(timeline, _FRAME, host.name))
    took = Intervals.union(host.start[rows], host.end[rows]).clip(*run.window).total
    if took <= _WORTH * run.wall:  # also where there is nothing of either
        return None
    return (
        f"{share(took, run.wall)} of the recorded time goes to unstall.graphed checking its captures, once each: "
        "record later steps (unstall run --warmup N) to see the steady state"
    )
