"""The budgets for counts per step: how often the host waits for the device, and how many launches it makes."""

from __future__ import annotations

from unstall.budgets.limits import count_shown
from unstall.budgets.outcome import OutcomeLine
from unstall.budgets.seen import MOST_LINES, NO_STEPS, OLDER, CannotTell, Seen
from unstall.figures import rate
from unstall.result import LineCount, Result, StepCount, Steps


def waits(result: Result, limit: float) -> Seen | CannotTell:
    """Returns how often the host waits for the device in one step. If the steps differ, returns the
    highest number of waits in a step.

    The field `lines` of the result has the lines at which the host waits. `limit` is not used.
    """
    return _seen(result, result.waits)


def launches(result: Result, limit: float) -> Seen | CannotTell:
    """Returns how many kernels, graphs, copies and memsets the host launches in one step. If the
    steps differ, returns the highest number of launches in a step.

    The field `lines` of the result has the lines that launch most. `limit` is not used.
    """
    return _seen(result, result.launches, MOST_LINES)


def _seen(result: Result, counted: StepCount | None, most_lines: int | None = None) -> Seen | CannotTell:
    if counted is None:
        return CannotTell(OLDER)
    if result.steps.found_by == "whole":
        return CannotTell(NO_STEPS)
    lines = tuple(OutcomeLine.of(line, _often(line, result.steps)) for line in counted.lines[:most_lines])
    return Seen(counted.most, count_shown(counted.most), _which(counted, result.steps), lines)


def _which(counted: StepCount, steps: Steps) -> str:
    """Returns a text with the number of the step that has the highest count, and with the mean count of all steps.

    Returns "" if all steps have the same count.
    """
    if counted.count == counted.most * steps.count:
        return ""
    return f" in step {counted.step:,} of {steps.count:,} (mean: {rate(counted.count / steps.count, whole_from=100)})"


def _often(line: LineCount, steps: Steps) -> str:
    """Returns how often a line waits or launches, as text: "2x a step", "3x in 1 of 10 steps", "up to 3x a step"."""
    if line.count == line.most * steps.count:
        return f"{line.most:,}x a step"
    if line.steps_seen < steps.count:
        return f"{line.count:,}x in {line.steps_seen:,} of {steps.count:,} steps"
    return f"up to {line.most:,}x a step"
