"""The pictures of runs in a report. They are drawn only if the report is written as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from unstall.diagnose.run import Run
from unstall.report.scrub import Scrub

Draw: TypeAlias = Callable[[], Sequence[bytes]]
"""A function that draws the pictures of runs. It returns each of them in the binary format of `report/payload.py`."""


def no_pictures() -> Sequence[bytes]:
    """Returns no pictures. It is the `Draw` of a result that was read from a file: such a result
    has no run that could be drawn.
    """
    return ()


def pictures_of(runs: Sequence[Run], scrub: Scrub | None = None) -> Draw:
    """Returns a function that draws the given runs, one picture for each. If `scrub` is given, each
    text of a picture is replaced by what `scrub` returns for it.
    """

    def drawn() -> Sequence[bytes]:
        from unstall.report.drawing import draw
        from unstall.report.payload import pack_picture

        return [pack_picture(draw(run), scrub) for run in runs]

    return drawn
