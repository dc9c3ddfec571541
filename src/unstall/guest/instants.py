"""Instants: reads of the clock by helpers that time their own work.

A read of the clock makes a virtual GPU simulate all that the program has done so far, which takes most of a
millisecond. A helper that times itself needs the time later, or never. So on a virtual GPU, an instant is a read whose
time is found when it is asked for, or when something else makes the GPU simulate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias


class LateRead(Protocol):
    """A read of the clock whose time may not be known yet."""

    def ns(self) -> int:
        """Returns the time in ns, on the clock of `time.perf_counter_ns`."""


Instant: TypeAlias = int | LateRead
"""A time in ns, or a read of the clock that will tell it."""

read_late: Callable[[], LateRead] | None = None
"""Reads the clock of a virtual GPU. None if the program's clock is real."""

_MOST_OPEN = 256  # spans whose length is not asked for yet


def instant() -> Instant:
    """Reads the clock."""
    read = read_late
    return time.perf_counter_ns() if read is None else read()


class Span(NamedTuple):
    """The time between two instants."""

    start: Instant
    end: Instant

    @property
    def ns(self) -> int:
        return _ns(self.end) - _ns(self.start)


class TotalTime:
    """A sum of spans. Finds their lengths when it is asked for the sum."""

    def __init__(self) -> None:
        self._known_ns = 0
        self._open: list[Span] = []

    def add(self, span: Span) -> None:
        if type(span.start) is int and type(span.end) is int:
            self._known_ns += span.end - span.start
            return
        self._open.append(span)
        if len(self._open) >= _MOST_OPEN:
            self._close()

    @property
    def ns(self) -> int:
        self._close()
        return self._known_ns

    def _close(self) -> None:
        spans, self._open = self._open, []
        self._known_ns += sum(span.ns for span in spans)


def _ns(at: Instant) -> int:
    return at if isinstance(at, int) else at.ns()
