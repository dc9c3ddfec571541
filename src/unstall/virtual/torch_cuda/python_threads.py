"""Tells the log when threads of Python begin, and when one waits for another's end: their virtual clocks follow."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from unstall.guest.patching import wrap, wrap_after

_MOMENTS = "_unstall_moments"


class ThreadShim(Protocol):
    """The functions of the shim that this module calls. A moment is a number."""

    def give(self) -> int:
        """Returns the current moment of the calling thread."""

    def give_at_end(self) -> int:
        """Does the same as `give`, but returns 0 for a thread that has not written to the log."""

    def take_over(self, given: int) -> None:
        """Tells the log that the calling thread goes on after a moment of another thread."""

    def begin_after(self, given: int) -> None:
        """Tells the log that the calling thread begins after a moment of another thread."""


class _Moments:
    """The moments at which a thread was started, and at which it ended; 0 if unknown."""

    def __init__(self, started: int) -> None:
        self.started, self.ended = started, 0


def order_threads(shim: ThreadShim) -> None:
    """Has `threading.Thread` tell the log when threads start and when they are joined. Which items of a queue, or which
    tasks of a pool, a thread works on depends on real time. So waits for those are not told.
    """

    def start(original: Any, thread: threading.Thread, *args: Any, **kwargs: Any) -> Any:
        setattr(thread, _MOMENTS, _Moments(shim.give()))
        return original(thread, *args, **kwargs)

    def began(thread: threading.Thread) -> None:
        if moments := _moments(thread):
            shim.begin_after(moments.started)

    def ended(thread: threading.Thread) -> None:
        if moments := _moments(thread):
            moments.ended = shim.give_at_end()

    def join(original: Any, thread: threading.Thread, *args: Any, **kwargs: Any) -> Any:
        shim.give()  # what this thread does up to here does not wait
        result = original(thread, *args, **kwargs)
        if (moments := _moments(thread)) and not thread.is_alive():
            shim.take_over(moments.ended)
        return result

    wrap(threading.Thread, "start", start)
    wrap_after(threading.Thread, "_set_native_id", began)  # the first thing in a new thread
    wrap_after(threading.Thread, "_delete", ended)  # the last
    wrap(threading.Thread, "join", join)


def _moments(thread: threading.Thread) -> _Moments | None:
    """Returns the moments of a thread; None if it was started before the virtual GPU was there."""
    found: _Moments | None = getattr(thread, _MOMENTS, None)
    return found
