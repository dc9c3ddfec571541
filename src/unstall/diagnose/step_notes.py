"""Notes on the steps of a run: the parts of the run that are outside of steps and are not counted,
and repeated parts that may be layers instead of steps.
"""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.figures import counted, duration, share
from unstall.locate.step_spans import LATE_NS, host_start
from unstall.locate.steps import RECORDED_STEP
from unstall.timeline.columns import Bool

_LITTLE = 0.05  # of the device's work: as near as a replay comes to a run


def notes_of_steps(run: Run) -> list[str]:
    """Returns a sentence for each thing that a reader of the report should know about the steps of a run."""
    notes = []
    # The recorder of unstall records the step before its window, too. What `unstall.graphed` proves has its own note.
    if run.steps.name != RECORDED_STEP and not run.steps.left_out and (outside := _outside(run)):
        notes.append(outside)
    if run.steps.found_by == "whole" and (waited := run.steps.window_start - host_start(run.timeline)) >= LATE_NS:
        notes.append(
            f"for {duration(waited)} the device was busy with work from before the recording: this is not counted"
        )
    if run.steps.found_by == "period":
        # Mending changes the sequence of launches that tells these steps, so another recording may be cut otherwise.
        call = "unstall.step()" if run.timeline.meta.recorder else "prof.step()"
        notes.append(
            f"only the period of the launches tells the steps: before you mend anything, put {call} at the end of each "
            "step and record again, so that the recordings before and after have the same steps"
        )
    if run.steps.repeats is not None:
        launches, times = run.steps.repeats
        notes.append(
            f"the same {counted(launches, 'launch')} repeat {times:,} times: they may be steps, or layers of one step, "
            "so the whole run counts as one step; an annotation around each step (--step NAME), or unstall.step(), "
            "tells which they are"
        )
    return notes


def _outside(run: Run) -> str | None:
    """Returns a sentence on the device's work outside of the window.

    Returns None if the work outside is at most 5 % of all device work.
    """
    device, outside = run.timeline.device, ~run.ops_inside
    work = device.end - device.start
    lost = int(work[outside].sum())
    if lost <= _LITTLE * int(work.sum()):
        return None

    def amount(chosen: Bool) -> str:
        return f"{counted(int(np.count_nonzero(chosen)), 'op')} ({duration(int(work[chosen].sum()))} of device work)"

    before = outside & (device.start < run.window[0])
    after = outside & ~before
    sides = [
        f"{amount(chosen)} {side} the steps" for chosen, side in ((before, "before"), (after, "after")) if chosen.any()
    ]
    return f"not counted: {' and '.join(sides)}, {share(lost, int(work.sum()))} of the device's work in the file"
