"""Finds work of a call that goes on after the call has returned, or that has not begun when the call returns."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from types import FrameType

_REST_S = 0.004
_LAZY = (map, filter, zip)


class PythonThreads:
    """Finds the Python threads that work on after a call has returned. Create the object just
    before the call. Call its methods `moved` and `new` just after the call.
    """

    def __init__(self) -> None:
        self._there = set(threading.enumerate())
        first = _frames()
        time.sleep(_REST_S)
        second = _frames()
        self._still = {thread: at for thread, at in second.items() if first.get(thread) == at}

    def moved(self) -> list[str]:
        """Returns the names of threads that were idle before the measured call and are working now."""
        now = _frames()
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return [names.get(thread, "?") for thread, at in self._still.items() if now.get(thread, at) != at]

    def new(self) -> list[str]:
        """Returns the names of threads that did not exist before the measured call and exist now."""
        return [each.name for each in threading.enumerate() if each not in self._there]


def unfinished_work(values: list[object], new: list[str], moved: list[str]) -> str | None:
    """Describes, for a sentence, the work of a call that is not finished when the call has
    returned. Returns None if all work is finished.

    Args:
        values: The result of the call, and the values inside the result.
        new: The names of threads that did not exist before the call, and still exist when the
            results of the call are ready.
        moved: The names of threads that existed before the call, and worked right after the call
            returned.
    """
    for value in values:
        kind = _not_begun(value)
        if kind is not None:
            return f"the call returns {kind}, and none of its body has run"
    if new:
        return f"the call leaves a thread at work ({new[0]})"
    for value in values:
        if callable(getattr(value, "done", None)) and callable(getattr(value, "result", None)):
            return f"the call returns a {type(value).__name__}, whose work goes on"
    if moved:
        return f"the call hands work to a thread ({moved[0]}) and does not wait for it"
    return None


def _not_begun(value: object) -> str | None:
    """Returns a description of `value`, such as "a generator", if it computes nothing until it is
    used. Returns None for all other values.
    """
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that nobody awaited it
        return "a coroutine"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return "a generator"
    if isinstance(value, _LAZY):
        return f"a {type(value).__name__}"
    return None


def _frames() -> dict[int, tuple[FrameType, int]]:
    mine = threading.get_ident()
    return {thread: (frame, frame.f_lasti) for thread, frame in sys._current_frames().items() if thread != mine}
