"""Makes the picture of a `Run` that the HTML report shows on its timeline."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.accounts import Gaps
from unstall.diagnose.run import Run
from unstall.report.picture import IdleIntervals, Picture
from unstall.report.picture_layout import picture_of
from unstall.report.wording import place
from unstall.timeline.columns import I32

_ALL_DEVICES = -1


def draw(run: Run) -> Picture:
    """Returns the picture of a run: its events, steps, idle time by cause, depth of the launch
    queue, and the source line of each event.
    """
    host_place, names = _places(run)
    return picture_of(
        run.timeline,
        window=(int(run.steps.start[0]), run.steps.window_end),
        idle=_idle(run),
        queue=run.depth,
        steps=(run.steps.start, run.steps.end),
        host_place=host_place,
        places=names,
    )


def _idle(run: Run) -> IdleIntervals:
    """Returns the idle intervals of each device.

    If there are several devices, the intervals in which all of them are idle at once come first;
    their device is -1.
    """
    each: list[tuple[int, Gaps]] = [(accounts.device, gaps) for accounts, gaps in run.by_device]
    if len(each) != 1:
        each.insert(0, (_ALL_DEVICES, run.gaps))
    return IdleIntervals(
        start=np.concatenate([gaps.start for _, gaps in each]),
        end=np.concatenate([gaps.end for _, gaps in each]),
        cause=np.concatenate([gaps.cause for _, gaps in each]),
        device=np.concatenate([np.full(len(gaps), device) for device, gaps in each]),
    )


def _places(run: Run) -> tuple[I32, list[str]]:
    """Returns `(index, places)`.

    `places` has each distinct source line of the run once, as text. `index` has, for each row of
    `timeline.host`, the index of its source line in `places`.
    """
    known, index = np.unique(run.places.place, return_inverse=True)
    names = [place(run.places.where(int(number), -1, None)) for number in known]
    return index.reshape(-1).astype(np.int32), names
