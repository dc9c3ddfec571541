"""Selects the part of a run on the virtual GPU that its report explains: without the warm-up, unless the user asks for
another part.
"""

from __future__ import annotations

from dataclasses import dataclass

from unstall.figures import counted, duration
from unstall.guest.step_source import USUAL_WARMUP
from unstall.locate.step_spans import left_out_around, with_work_outside
from unstall.locate.steps import find_steps
from unstall.timeline.columns import Timeline
from unstall.virtual.timeline.steps import with_steps
from unstall.virtual.timeline.window import FOREVER, before_operators, cut

_MARKED = ("annotation", "optimizer", "period")
_LEAST_STEPS = 2  # after the warm-up: earlier work may end in the first, so a single one may show it only


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a run that the user asks for. A field is None if the user does not ask.

    Attributes:
        warmup: The number of steps to skip: the value of --warmup.
        steps: The number of steps after these: the value of --steps.
        after_s: How many seconds to skip: the value of --after.
        for_s: How many seconds to take after these: the value of --for.
        most_steps: The largest number of steps to take if `steps` is None; None: all.
    """

    warmup: int | None = None
    steps: int | None = None
    after_s: float | None = None
    for_s: float | None = None
    most_steps: int | None = None


USUAL = Part()
"""The part that a report explains if the user asks for no other: all steps after the usual warm-up."""


def part_of(timeline: Timeline, asked: Part = USUAL) -> Timeline:
    """Returns the part of a run that a report explains.

    If only the warm-up is given, all steps after the warm-up are selected. If only the number of
    steps is given, the usual warm-up is skipped. If neither steps nor seconds are given, the part
    after the usual warm-up is selected. In this last case, the whole run is selected if it has no
    step boundaries, no steps after the warm-up, or any races, because races may be anywhere in the
    run.

    If a device failed, returns the whole run, regardless of `asked`. If the selected part is
    empty, returns the whole run with a note in `Meta.shortfall`. There is also a note in
    `Meta.shortfall` if the run has too few steps.
    """
    if (not len(timeline.host) and not len(timeline.device)) or len(timeline.faults):
        return timeline
    try:
        return _part(timeline, asked)
    except _EmptyError as empty:
        return _short_of(timeline, f"this is the whole run, since {empty}")


class _EmptyError(Exception):
    """Raised when the selected part of a run is empty. The message is a clause that says why and what to do."""


def _part(timeline: Timeline, asked: Part) -> Timeline:
    start, end, alone = 0, FOREVER, False
    counts = asked.warmup is not None or asked.steps is not None
    if counts or (asked.after_s is None and asked.for_s is None and not len(timeline.races)):
        steps = find_steps(timeline)
        if counts and steps.found_by == "whole":
            raise _EmptyError(
                "no steps were found in it, which --warmup and --steps count: mark the end of each by unstall.step(), "
                "or ask for seconds (--after, --for)"
            )
        if counts or steps.found_by in _MARKED:
            warmup = _warmup_of(len(steps), asked.warmup)
            found = steps.left_out
            is_warm = found is not None and found.proving + found.apart + found.loops + found.mixed > 0
            if not (warmup or is_warm) and asked.warmup is None:
                timeline = _without_warmup(timeline, len(steps))
            most = asked.steps or asked.most_steps or len(steps)
            last = min(len(steps), warmup + most) - 1
            left_out = left_out_around(steps, warmup, last + 1)
            timeline = timeline.with_meta(left_out=left_out and with_work_outside(timeline, steps, left_out))
            if counts or warmup or steps.left_out:
                # Steps that are told by their launches begin within an operator.
                start, end = before_operators(timeline, int(steps.start[warmup])), int(steps.end[last])
                alone = last == warmup and steps.found_by == "optimizer"
    if asked.after_s is not None:
        start = round(asked.after_s * 1e9)
    if asked.for_s is not None:
        end = start + round(asked.for_s * 1e9)
    if (start, end) == (0, FOREVER):
        return timeline
    part = cut(timeline, start, end)
    if not len(part.host) and not len(part.device):
        lasted = max((int(table.end.max()) for table in (timeline.host, timeline.device) if len(table)), default=0)
        raise _EmptyError(
            "nothing ran in the time that --after and --for ask for: they are seconds of the virtual clock, on which "
            f"the program took {duration(lasted)}"
        )
    if not alone:  # a single step of an optimizer is no step boundary
        return part
    zero = part.meta.zero_ns - timeline.meta.zero_ns
    return with_steps(part, [start - zero, end - zero], "optimizer")


def _warmup_of(steps: int, asked: int | None) -> int:
    """Returns the number of warm-up steps to skip. `asked` is the value of --warmup. Raises _EmptyError if no step
    would remain.
    """
    if asked is None:
        return min(USUAL_WARMUP, steps - _LEAST_STEPS) if steps > USUAL_WARMUP else 0
    if asked >= steps:
        raise _EmptyError(
            f"--warmup {asked} leaves none of its {counted(steps, 'step')} to explain: "
            f"give --warmup {steps - 1} or less"
        )
    return asked


def _without_warmup(timeline: Timeline, steps: int) -> Timeline:
    """Adds a note (`shortfall`) to a timeline. The note says that all steps are explained, because the run is too short
    for a warm-up.
    """
    return _short_of(
        timeline,
        f"the run has {counted(steps, 'step')}, too few to let the first {USUAL_WARMUP} go by as usual: what a "
        "program does once only is in them",
    )


def _short_of(timeline: Timeline, shortfall: str) -> Timeline:
    return timeline.with_meta(shortfall=shortfall)
