"""Notes where a program read a clock: the virtual clock of the host, or a device's, by the time
between two CUDA events. Reports use this to say which waits a measurement needs, and which device
work it leaves out.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from array import array
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from unstall.frameworks import OURS, is_users, top_module
from unstall.timeline.limits import MOST_READS

if TYPE_CHECKING:
    import numpy as np

_EVENTS = re.compile(r"torch/(cuda/streams|accelerator/\w+|_streams)\.py$")  # classes of events
_OF_THE_CLOCK = OURS + "virtual" + os.sep


class ClockLog:
    """The reads of a clock on the main thread. Of each read, it keeps the virtual time, the line of
    the program that read it, and whose clock it was.

    A read of the host's clock by a library, such as a progress bar, is not kept. Nor is a read by
    unstall, such as by `bench`, which waits for the device, or a read of a device's clock by torch
    itself, such as by DistributedDataParallel. A read by `timeit`, which does not wait, counts as a
    read by the line that called `timeit`, and a read of a device's clock by a library as one by the
    line that called the library.

    Attributes:
        places: The different lines that read the clock, as pairs (code object, line number).
    """

    def __init__(self) -> None:
        # The clock starts before the program imports NumPy, if it does.
        self._ns, self._place, self._of_host = array("q"), array("i"), array("b")
        self.places: list[tuple[CodeType, int]] = []
        self._number: dict[tuple[CodeType, int], int] = {}

    def add(self, ns: int, *, of_host: bool = True) -> None:
        """Adds a read by the calling thread. Does nothing if that is not the main thread, or if
        there are too many reads already.

        Args:
            ns: The time of the read, in ns of the virtual clock.
            of_host: Whether the virtual clock is read. If not, the time between two CUDA events is.
        """
        if len(self._ns) >= MOST_READS or threading.current_thread() is not threading.main_thread():
            return
        frame = reader() if of_host else _reader_of_events()
        if frame is None or not is_users(frame.f_code.co_filename):
            return
        place = frame.f_code, frame.f_lineno
        number = self._number.setdefault(place, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        self._ns.append(ns)
        self._place.append(number)
        self._of_host.append(of_host)

    def whole(self) -> np.ndarray:
        """Returns all reads, in the order in which they were added. The fields of an element are
        `ns`, the time of the read, `place`, an index into `places`, and `of_host`, as in `add`.
        """
        import numpy as np

        reads = np.empty(len(self._ns), [("ns", "<i8"), ("place", "<i4"), ("of_host", "?")])
        reads["ns"], reads["place"], reads["of_host"] = self._ns, self._place, self._of_host
        return reads


def reader() -> FrameType | None:
    """Returns the frame that reads the clock: the innermost frame that belongs to neither the virtual
    GPU nor `timeit`. Returns None if there is no such frame.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_OF_THE_CLOCK) or _is_timeit(frame)):
        frame = frame.f_back
    return frame


def _reader_of_events() -> FrameType | None:
    """Returns the frame for which the time between two CUDA events is read: the user's innermost one, even if it called
    a library that reads the time, since a library does not read this time by chance. Returns None if unstall reads it,
    or torch itself.
    """
    frame = reader()
    if frame is not None and _EVENTS.search(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is not None and top_module(frame.f_code.co_filename) == "torch":
        return None
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = None if frame.f_code.co_filename.startswith(OURS) else frame.f_back
    return frame


def _is_timeit(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "timeit" or frame.f_code.co_filename == "<timeit-src>"
