"""Which part of a run on the virtual GPU the options ask for. The report explains this part. With --stop, the program
ends after it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._recording import say
from unstall.figures import counted, duration
from unstall.recording.settings import Settings

if TYPE_CHECKING:
    from unstall.timeline.columns import Timeline
    from unstall.virtual.stopping import Until

_MARKED = ("annotation", "optimizer", "period")
_WARMUP = Settings("").warmup
_LEAST_STEPS = 2  # after the warm-up: earlier work may end in the first, so a single one may show it only


def ask_to_stop(folder: Path, args: argparse.Namespace) -> None:
    """If --stop is given, asks the program to end after the steps or the time that the other
    options select.

    Args:
        folder: The folder in which the program stores its run.
        args: The parsed arguments.
    """
    from unstall.virtual.stopping import ask

    if args.stop:
        ask(folder, _until(args))


def tell_of_stop(folder: Path, args: argparse.Namespace) -> None:
    """If --stop is given, prints after how many steps it ended the program, or why it did not end
    the program.

    Args:
        folder: The folder in which the program stores its run.
        args: The parsed arguments.
    """
    from unstall.virtual.stopping import steps_of_ended, stopped_after

    steps = stopped_after(folder)
    if steps is not None:
        say(f"--stop ended the program after {counted(steps, 'step')}")
        return
    taken = steps_of_ended(folder)
    if not taken:
        why = "unstall saw none of its steps: call unstall.step() at the end of each"
    elif args.after is not None or args.for_ is not None:
        why = f"it ended after {counted(taken, 'step')}, before the seconds asked for were over"
    else:
        until = _until(args)
        why = (
            f"it ended after {counted(taken, 'step')}, before the {until.warmup} for warm-up and the {until.steps} to "
            "record were over: give fewer --steps"
        )
    say(f"--stop did not end the program: {why}")


def _until(args: argparse.Namespace) -> Until:
    from unstall.virtual.stopping import Until

    warmup = _WARMUP if args.warmup is None else args.warmup
    steps = Settings("").steps if args.steps is None else args.steps
    return Until(warmup if args.after is None else 0, steps, args.after or 0.0, args.for_)


def part_asked_for(timeline: Timeline, args: argparse.Namespace) -> Timeline:
    """Returns the part of a run that the options --warmup, --steps, --after and --for select.

    If only --warmup is given, all steps after the warm-up are selected. If only --steps is given,
    the usual warm-up is skipped. If none of these options is given, the part after the usual
    warm-up is selected. In this last case, the whole run is selected if it has no step boundaries,
    no steps after the warm-up, or any races, because races may be anywhere in the run.

    If a device failed, returns the whole run, regardless of the options. If the selected part is
    empty, returns the whole run with a note in `Meta.shortfall`. There is also a note in
    `Meta.shortfall` if the run has too few steps.
    """
    if (not len(timeline.host) and not len(timeline.device)) or len(timeline.faults):
        return timeline
    try:
        return _part(timeline, args)
    except _EmptyError as empty:
        return _short_of(timeline, f"this is the whole run, since {empty}")


class _EmptyError(Exception):
    """Raised when the selected part of a run is empty. The message is a clause that says why and what to do."""


def _part(timeline: Timeline, args: argparse.Namespace) -> Timeline:
    from unstall.locate.step_spans import left_out_around, with_work_outside
    from unstall.locate.steps import find_steps
    from unstall.virtual.timeline.steps import with_steps
    from unstall.virtual.timeline.window import FOREVER, before_operators, cut

    start, end, alone = 0, FOREVER, False
    counts = args.warmup is not None or args.steps is not None
    if counts or (args.after is None and args.for_ is None and not len(timeline.races)):
        steps = find_steps(timeline)
        if counts and steps.found_by == "whole":
            raise _EmptyError(
                "no steps were found in it, which --warmup and --steps count: mark the end of each by unstall.step(), "
                "or ask for seconds (--after, --for)"
            )
        if counts or steps.found_by in _MARKED:
            warmup = _warmup_of(len(steps), args.warmup)
            found = steps.left_out
            is_warm = found is not None and found.proving + found.apart + found.loops + found.mixed > 0
            if not (warmup or is_warm) and args.warmup is None:
                timeline = _without_warmup(timeline, len(steps))
            most = args.steps or (Settings("").steps if args.stop else len(steps))
            last = min(len(steps), warmup + most) - 1
            left_out = left_out_around(steps, warmup, last + 1)
            timeline = timeline.with_meta(left_out=left_out and with_work_outside(timeline, steps, left_out))
            if counts or warmup or steps.left_out:
                # Steps that are told by their launches begin within an operator.
                start, end = before_operators(timeline, int(steps.start[warmup])), int(steps.end[last])
                alone = last == warmup and steps.found_by == "optimizer"
    if args.after is not None:
        start = round(args.after * 1e9)
    if args.for_ is not None:
        end = start + round(args.for_ * 1e9)
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
        return min(_WARMUP, steps - _LEAST_STEPS) if steps > _WARMUP else 0
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
        f"the run has {counted(steps, 'step')}, too few to let the first {_WARMUP} go by as usual: what a program does "
        "once only is in them",
    )


def _short_of(timeline: Timeline, shortfall: str) -> Timeline:
    return timeline.with_meta(shortfall=shortfall)
