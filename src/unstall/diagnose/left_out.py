"""Tells which steps the figures of a run leave out, and why."""

from __future__ import annotations

import msgspec

from unstall.diagnose.run import Run
from unstall.figures import listed
from unstall.result import LeftOut


def left_out_of(run: Run) -> LeftOut | None:
    """Returns how many steps were left out of the figures, by this analysis or by the recorder.
    Returns None if no step was left out.
    """
    found = run.steps.left_out or run.timeline.meta.left_out
    return LeftOut(**msgspec.structs.asdict(found)) if found else None


def why_left_out(left_out: LeftOut) -> str:
    """Returns a phrase with the numbers of steps that were left out, and the reason for each number."""
    # Other work cuts a loop into stretches.
    loops = "loops or stretches" if left_out.mixed else "loops"
    reasons = (
        (left_out.warmup, "the first {} (warm-up)"),
        (
            left_out.proving,
            "{} in which unstall.graphed proves its graphs (it observes, captures and compares, once each)",
        ),
        (left_out.apart, "{} apart from the longest stretch of others"),
        (left_out.loops, f"{{}} of other {loops} than the longest"),
        (left_out.mixed, "{} with an evaluation or other work before the step"),
        (left_out.empty, "{} in which nothing is launched"),
        (left_out.later, "{} after those that were asked for"),
    )
    return listed([reason.format(f"{count:,}") for count, reason in reasons if count])
