"""Which part of a run on the virtual GPU the options ask for. The report explains this part. With --stop, the program
ends after it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.cli._recording import say
from unstall.figures import counted
from unstall.guest.step_source import USUAL_WARMUP
from unstall.recording.settings import Settings

if TYPE_CHECKING:
    from unstall.timeline.columns import Timeline
    from unstall.virtual.stopping import Until


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

    warmup = USUAL_WARMUP if args.warmup is None else args.warmup
    steps = Settings("").steps if args.steps is None else args.steps
    return Until(warmup if args.after is None else 0, steps, args.after or 0.0, args.for_)


def part_asked_for(timeline: Timeline, args: argparse.Namespace) -> Timeline:
    """Returns the part of a run that the options --warmup, --steps, --after and --for select, as `part_of` does."""
    from unstall.virtual.timeline.part import Part, part_of

    most = Settings("").steps if args.stop else None
    return part_of(timeline, Part(args.warmup, args.steps, args.after, args.for_, most))
