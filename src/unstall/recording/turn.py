"""Takes turns: one thread at a time changes a recording, and only some threads may stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_END_WAITS_S = 1.0  # wait for a boundary that another thread is processing
_THREAD_WAITS_S, _LOOK_AGAIN_S = 5.0, 0.001  # wait for a boundary of the only thread that can stop the window
_WRITING_WAITS_S = 60.0  # wait for that thread to write the recording


class Turn:
    """A lock that never keeps the program from ending."""

    def __init__(self, may_stop_here: Callable[[], bool]) -> None:
        """`may_stop_here` returns whether this thread may stop what is recorded."""
        self._may_stop_here = may_stop_here
        self._lock = threading.Lock()
        self.asked_to_end: str | None = None
        """Why another thread waits for the end; None if none does."""

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Yields whether this thread got the turn, without waiting. Nobody gets it while any thread has it."""
        got = self._lock.acquire(blocking=False)
        try:
            yield got
        finally:
            if got:
                self._lock.release()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Waits until it is this thread's turn. Used by a thread of our own."""
        with self._lock:
            yield

    @contextmanager
    def to_end(self, why: str) -> Iterator[None]:
        """Waits until it is this thread's turn. If only another thread may stop the recording, also waits for that
        thread's next step boundary. If a wait takes too long, goes on without the turn."""
        self.asked_to_end = why
        got = self._lock.acquire(timeout=_END_WAITS_S)
        if got and not self._may_stop_here():
            self._lock.release()
            until = time.monotonic() + _THREAD_WAITS_S
            while not self._may_stop_here() and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN_S)
            got = self._lock.acquire(timeout=_WRITING_WAITS_S)
        try:
            yield
        finally:
            if got:
                self._lock.release()
