"""Notes where a program read the virtual clock, and which time it got. Reports use this to say
which device work the program's own time measurements leave out.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from unstall.frameworks import OURS, is_users
from unstall.timeline.limits import MOST_READS

if TYPE_CHECKING:
    import numpy as np

_OF_THE_CLOCK = OURS + "virtual" + os.sep


class ClockLog:
    """The reads of the virtual clock on the main thread. Of each read, it keeps the virtual time
    and the line of the program that read it.

    A read by a library, such as a progress bar, is not kept. Nor is a read by unstall, such as by
    `bench`, which waits for the device. A read by `timeit`, which does not wait, counts as a read by
    the line that called `timeit`.

    Attributes:
        places: The different lines that read the clock, as pairs (code object, line number).
    """

    def __init__(self) -> None:
        self._ns, self._place = array("q"), array("i")  # the clock starts before the program imports NumPy, if it does
        self.places: list[tuple[CodeType, int]] = []
        self._number: dict[tuple[CodeType, int], int] = {}

    def add(self, ns: int) -> None:
        """Adds a read by the calling thread. Does nothing if that is not the main thread, or if
        there are too many reads already.

        Args:
            ns: The time that was read, in ns of the virtual clock.
        """
        if len(self._ns) >= MOST_READS or threading.current_thread() is not threading.main_thread():
            return
        frame = reader()
        if frame is None or not is_users(frame.f_code.co_filename):
            return
        place = frame.f_code, frame.f_lineno
        number = self._number.setdefault(place, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        self._ns.append(ns)
        self._place.append(number)

    def whole(self) -> np.ndarray:
        """Returns all reads, in the order in which they were added. The fields of an element are
        `ns`, the time that was read, and `place`, an index into `places`.
        """
        import numpy as np

        reads = np.empty(len(self._ns), [("ns", "<i8"), ("place", "<i4")])
        reads["ns"], reads["place"] = self._ns, self._place
        return reads


def reader() -> FrameType | None:
    """Returns the frame that reads the clock: the innermost frame that belongs to neither the virtual
    GPU nor `timeit`. Returns None if there is no such frame.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_OF_THE_CLOCK) or _is_timeit(frame)):
        frame = frame.f_back
    return frame


def _is_timeit(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "timeit" or frame.f_code.co_filename == "<timeit-src>"
