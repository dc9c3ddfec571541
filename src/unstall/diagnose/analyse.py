"""Computes the `Run` of a timeline: the data from which all findings are made."""

from __future__ import annotations

from collections.abc import Sequence

from unstall.diagnose.activity import HostActivity
from unstall.diagnose.run import Run
from unstall.locate.places import Places, find_places
from unstall.locate.steps import Steps, find_steps
from unstall.timeline.clock_skew import clock_skew
from unstall.timeline.columns import Timeline


def analyse(
    timeline: Timeline,
    *,
    step: str | None = None,
    user: Sequence[str] = (),
    steps: Steps | None = None,
    places: Places | None = None,
) -> Run:
    """Finds the steps of a timeline, the source line of each event, and where the time went.

    Args:
        timeline: The recorded or replayed run.
        step: The name of the annotation around each step, or a glob. If None, the step name stored
            in the recording is used. If the recording has no step name, steps are detected.
        user: Globs of the files that count as the user's code. If empty, the globs stored in the
            recording are used. If the recording has no globs, all files except the files of
            frameworks count as the user's code.
        steps: The steps, if they are already known.
        places: The source line of each row of `timeline.host`, if these lines are already known.

    Raises:
        UsageError: No annotation is called `step`.
    """
    steps = steps or find_steps(timeline, step)
    user = user or timeline.meta.user
    second_step = int(steps.start[1]) if len(steps) > 1 else None
    activity = HostActivity(timeline, timeline.device.launch, second_step, clock_skew(timeline))
    if places is None:
        places = find_places(timeline, user, steps.name if steps.found_by == "annotation" else None)
    return Run(timeline, steps, places, activity)
