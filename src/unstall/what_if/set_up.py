"""Recognizes findings about set-up: work that a program does only once, and that a recording has in its first step."""

from __future__ import annotations

from unstall.locate.steps import Steps
from unstall.result import Finding
from unstall.timeline.columns import Timeline

_SEVERAL = 3  # steps; of two in a row, something may happen in each other one


def is_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether the finding happens only in the first of several steps, so that there is nothing to mend in later
    steps.
    """
    several = len(steps) >= (2 if begins_with_program(timeline) else _SEVERAL)
    return several and bool(finding.spans) and max(finding.spans)[0] < int(steps.start[1])


def was_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether the finding is about set-up at the beginning of the program, which cannot come again.

    If the run begins later in the program, what happens only in its first step may come again.
    """
    return begins_with_program(timeline) and is_set_up(finding, timeline, steps)


def begins_with_program(timeline: Timeline) -> bool:
    """Returns whether the recording begins where the program begins.

    Programs that end before the recorder is ready are recorded from their first step (`meta.shortfall` is set).
    """
    return timeline.meta.shortfall is not None
