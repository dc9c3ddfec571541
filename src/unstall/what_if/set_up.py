"""Recognizes findings about set-up. Set-up is work that a program does only once. In a recording, set-up is in the
first step.
"""

from __future__ import annotations

from unstall.locate.steps import Steps
from unstall.result import Finding
from unstall.timeline.columns import Timeline

_SEVERAL = 3  # steps; of two in a row, something may happen in each other one


def is_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether the finding happens only in the first of several steps. If it does, later steps need no
    change.
    """
    several = len(steps) >= (2 if begins_with_program(timeline) else _SEVERAL)
    return several and bool(finding.spans) and max(finding.spans)[0] < int(steps.start[1])


def was_set_up(finding: Finding, timeline: Timeline, steps: Steps) -> bool:
    """Returns whether the finding is about set-up at the start of the program. Such set-up does not happen again.

    If the recording starts later in the program, set-up in the recording's first step may happen again. The result is
    then False.
    """
    return begins_with_program(timeline) and is_set_up(finding, timeline, steps)


def begins_with_program(timeline: Timeline) -> bool:
    """Returns whether the recording starts at the start of the program.

    If a program ends before the recorder is ready, the recording has the program's first step, and `meta.shortfall` is
    set.
    """
    return timeline.meta.shortfall is not None
