"""Tells which findings are about set-up: what a program does only once. In a recording, that is in the first step."""

from __future__ import annotations

from unstall.locate.steps import Steps
from unstall.result import Finding
from unstall.timeline.columns import Timeline

_SEVERAL = 3  # steps; of two in a row, something may happen in each other one


def is_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether what the finding is about happens only in the first of several steps, so that
    later steps need no change.
    """
    several = len(steps) >= (2 if begins_with_program(timeline) else _SEVERAL)
    return several and bool(finding.spans) and max(finding.spans)[0] < int(steps.start[1])


def was_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether the finding is about set-up at the start of the program, which will not
    happen again.

    Returns False if the recording began later: what happens in its first step only may still happen
    again.
    """
    return begins_with_program(timeline) and is_set_up(finding, timeline, steps)


def begins_with_program(timeline: Timeline) -> bool:
    """Returns whether the recording begins with the program's first step.

    It does if the program ended before the recorder had warmed up. Then the first steps are kept,
    and `meta.shortfall` says so.
    """
    return timeline.meta.shortfall is not None
