"""The reads of the virtual clock by lines of the program. With these, reports say what a measured time leaves out."""

from __future__ import annotations

import sys
import threading
from types import CodeType, FrameType

import numpy as np

from unstall.frameworks import OURS, is_users
from unstall.timeline.limits import MOST_READS
from unstall.virtual.growing_array import GrowingArray

_READ = np.dtype([("ns", "<i8"), ("place", "<i4")])


class ClockLog:
    """Collects reads of the clock on the main thread: the virtual time, and the place of the program that reads.

    Reads of libraries, such as a progress bar's, are left out. Those of `timeit` belong to the program.
    """

    def __init__(self) -> None:
        self._reads = GrowingArray(_READ)
        self.places: list[tuple[CodeType, int]] = []  # code and line
        self._number: dict[tuple[CodeType, int], int] = {}

    def add(self, ns: int) -> None:
        """Adds a read at the virtual time `ns` by the calling thread."""
        if self._reads.length >= MOST_READS or threading.current_thread() is not threading.main_thread():
            return
        frame = _program(sys._getframe(1))
        if frame is None:
            return
        place = frame.f_code, frame.f_lineno
        number = self._number.setdefault(place, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        row = np.empty(1, _READ)
        row["ns"], row["place"] = ns, number
        self._reads.append(row)

    def whole(self) -> np.ndarray:
        """Returns all reads, with the fields `ns` and `place`: an index of `places`."""
        return self._reads.whole()


def _program(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame outside of this package and of `timeit`, if it is the program's; else None."""
    while frame is not None and (frame.f_code.co_filename.startswith(OURS) or _is_timeit(frame)):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def _is_timeit(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "timeit" or frame.f_code.co_filename == "<timeit-src>"
