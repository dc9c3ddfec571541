"""A lock on a recording. One thread at a time may change the recording, and only certain threads may stop it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_END_WAITS_S = 1.0  # wait for a boundary that another thread is processing
_THREAD_WAITS_S, _LOOK_AGAIN_S = 5.0, 0.001  # wait for a boundary of the only thread that can stop the window
_WRITING_WAITS_S = 60.0  # wait for another thread to write the recording


class Turn:
    """A lock on a recording. Only the thread that holds the lock may change the recording.

    At the program's end, a thread waits for the lock only for a limited time.
    """

    def __init__(self, may_stop_here: Callable[[], bool]) -> None:
        """Makes a lock that no thread holds. `may_stop_here` returns whether the calling thread may
        stop the recording.
        """
        self._may_stop_here = may_stop_here
        self._lock = threading.Lock()
        self._writer: int | None = None
        self.asked_to_end: str | None = None
        """Why a thread asked to end the recording; None if no thread asked."""

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Returns a context manager. It takes this lock for its block if no thread holds the lock,
        and yields whether it took the lock. It never waits.
        """
        got = self._lock.acquire(blocking=False)
        try:
            yield got
        finally:
            if got:
                self._lock.release()

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Returns a context manager that waits for this lock, and holds it during its block. Only
        threads that unstall started may use it.
        """
        with self._lock:
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Returns a context manager for the block in which the calling thread writes the recording.
        During the block, another thread that wants to end the recording waits longer for this lock.
        """
        before, self._writer = self._writer, threading.get_ident()
        try:
            yield
        finally:
            self._writer = before

    @contextmanager
    def to_end(self, why: str) -> Iterator[None]:
        """Returns a context manager that waits for this lock, and holds it during its block. The
        block ends the recording, and `why` is the reason.

        If another thread is the only one that may stop the recording, first waits until that thread
        has reached its next step boundary. If a wait takes too long, the block runs without the
        lock.
        """
        self.asked_to_end = why
        got = self._lock.acquire(timeout=_END_WAITS_S)
        if not got and self._writer not in (None, threading.get_ident()):  # not for what a signal interrupted
            got = self._lock.acquire(timeout=_WRITING_WAITS_S)
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
