"""One-time checks of `unstall.graphed` within the recording: observing functions and comparing their captures."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.diagnose.run import Run
from unstall.figures import counted, share
from unstall.locate.proving import PROVING_FILE, proving_times
from unstall.locate.step_spans import Steps
from unstall.result import Finding

_WORTH = 0.01  # of the window


def note_of_checks(run: Run) -> str | None:
    """Returns a sentence if steps were left out because of the checks, or if the checks took a notable part of the
    window. Otherwise, or if no frames were recorded, returns None."""
    if run.steps.proving:
        return words_of_proving(run.steps)
    took = proving_times(run.timeline).clip(*run.window).total
    if took <= _WORTH * run.wall:  # also if both are 0
        return None
    return (
        f"{share(took, run.wall)} of the recorded time goes to unstall.graphed checking its captures, once each: "
        "record later steps (unstall run --warmup N) to see the steady state"
    )


def without_checks(findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings except those at the checks' own lines, which nobody can fix and which later steps do not
    run."""
    return [each for each in findings if each.where.file is None or not PROVING_FILE.match(each.where.file)]


def words_of_proving(steps: Steps) -> str:
    """Returns a sentence on the steps that were left out of `steps`."""
    others = f", and {counted(steps.apart, 'step')} apart from the longest stretch without" if steps.apart else ""
    return (
        f"left out: {counted(steps.proving, 'step')} in which unstall.graphed proves its graphs (it observes, captures "
        f"and compares, once each){others}"
    )
