"""What a program does once, before its steps, and the recording has in its first step."""

from __future__ import annotations

from unstall.locate.steps import Steps
from unstall.result import Finding
from unstall.timeline.columns import Timeline

_SEVERAL = 3  # steps; of two in a row, something may happen in each other one


def is_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether all of it happens in the first of several steps: there is nothing to mend in later ones."""
    several = len(steps) >= (2 if begins_with_program(timeline) else _SEVERAL)
    return several and bool(finding.spans) and max(finding.spans)[0] < int(steps.start[1])


def was_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether it is over once the program's steps have begun. In a later part of a run, what the first step
    alone has may come again."""
    return begins_with_program(timeline) and is_set_up(finding, timeline, steps)


def begins_with_program(timeline: Timeline) -> bool:
    """Returns whether the run has the program's beginning in it, as it was too short for what was asked for."""
    return timeline.meta.shortfall is not None
