"""Says in a timeline how long work of the host took in a step that the virtual clock does not charge."""

from __future__ import annotations

import numpy as np

from unstall.locate.steps import find_steps
from unstall.timeline.columns import Timeline
from unstall.virtual.simulation.free_work import longest
from unstall.virtual.simulation.simulator import Simulator


def with_free_work(timeline: Timeline, simulator: Simulator, start_ns: int) -> Timeline:
    """Returns the timeline with `Meta.free_work_ns` and `Meta.free_work_at`. The first step and what comes before it
    are left out. Returns it unchanged if its clock charges all work, or if no steps are found.

    Args:
        timeline: A timeline of the run, with its steps.
        simulator: The simulator of the run.
        start_ns: When the timeline begins on the virtual clock, in ns.
    """
    before, after, at_ns, ns = simulator.free_work()
    if not timeline.meta.free_work or not len(ns):
        return timeline
    steps = find_steps(timeline)
    if len(steps) < 2:
        return timeline
    step = np.searchsorted(steps.start, at_ns - start_ns, side="right") - 1
    inside = (step >= 1) & (at_ns - start_ns <= steps.end[-1])
    took = np.bincount(step[inside] - 1, ns[inside], minlength=len(steps) - 1)
    usual = int(np.median(took))  # a step in which another process took the CPU is none
    if not usual:
        return timeline
    pair, _ = longest(before[inside], after[inside], ns[inside])
    return timeline.with_meta(free_work_ns=usual, free_work_at=simulator.place_between(pair))
