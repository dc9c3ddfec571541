"""The pictures of a report. They are drawn only when an HTML page needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from unstall.diagnose.run import Run
from unstall.report.scrub import Scrub

Draw: TypeAlias = Callable[[], Sequence[bytes]]
"""A function that draws the pictures of runs, and returns them in the binary format of `payload`."""


def no_pictures() -> Sequence[bytes]:
    """Returns (). Used for a result that was read from a file. Such a result has no run to draw."""
    return ()


def pictures_of(runs: Sequence[Run], scrub: Scrub | None = None) -> Draw:
    """Returns a function that draws the given runs. `scrub` is applied to each text of a picture."""

    def drawn() -> Sequence[bytes]:
        from unstall.report.drawing import draw
        from unstall.report.payload import pack_picture

        return [pack_picture(draw(run), scrub) for run in runs]

    return drawn
