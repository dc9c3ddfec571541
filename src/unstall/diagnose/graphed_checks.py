"""One-time checks of `unstall.graphed` within the recording: examining functions and verifying their captures."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import share
from unstall.locate.kinds import named
from unstall.timeline.columns import HostKind
from unstall.timeline.intervals import Intervals

CHECKING = ("_capture", "_observe", "_checked")
"""Methods of `GraphServer` that examine, capture or verify a function. They serve no call."""

_FRAME = re.compile(rf"(.*/)?unstall/fix/graphs/serving\.py\(\d+\): (\w+\.)*({'|'.join(CHECKING)})$")
_WORTH = 0.01  # of the window


def note_of_checks(run: Run) -> str | None:
    """Returns a sentence if the checks took a notable part of the window; None if not, or if frames were not
    recorded."""
    timeline, host = run.timeline, run.timeline.host
    rows = np.flatnonzero((host.kind == HostKind.PYTHON) & named(timeline, _FRAME, host.name))
    took = Intervals.union(host.start[rows], host.end[rows]).clip(*run.window).total
    if took <= _WORTH * run.wall:  # also if both are 0
        return None
    return (
        f"{share(took, run.wall)} of the recorded time goes to unstall.graphed checking its captures, once each: "
        "record later steps (unstall run --warmup N) to see the steady state"
    )
