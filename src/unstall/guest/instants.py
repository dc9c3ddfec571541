"""Instants: reads of the clock by functions of unstall that time their own work, such as `unstall.prefetch`.

On a virtual GPU, a read of the clock makes the virtual GPU simulate everything that the program has done so far. This
takes most of a millisecond. But a function that times itself needs the time only later, or never. So on a virtual GPU,
an instant is an object whose time is worked out when the time is needed, or when something else makes the virtual GPU
simulate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias


class LateRead(Protocol):
    """A read of a virtual GPU's clock whose time may not have been worked out yet."""

    def ns(self) -> int:
        """Returns the time of this read in ns, on the clock of `time.perf_counter_ns`. Works the time out if it is not
        known yet."""


Instant: TypeAlias = int | LateRead
"""A time in ns on the clock of `time.perf_counter_ns`, or a read of the clock whose time is worked out later."""

read_late: Callable[[], LateRead] | None = None
"""A function that reads the clock of the virtual GPU without working out the time. None if the program has no virtual
GPU."""

_MOST_OPEN = 256  # spans whose length is not asked for yet


def instant() -> Instant:
    """Reads the clock. Returns the time in ns. On a virtual GPU, returns an object whose time is worked out later."""
    read = read_late
    return time.perf_counter_ns() if read is None else read()


def for_program() -> int:
    """Reads the clock for the program whose code is timed, such as the block of a `Stopwatch`. Returns the time in ns.

    A virtual GPU treats this read as the program's own: it tells the program if the clock leaves out work of the
    program. It does not tell so of other reads by unstall.
    """
    return time.perf_counter_ns()


class Span(NamedTuple):
    """The time between two instants (reads of the clock). `ns` is its length in ns."""

    start: Instant
    end: Instant

    @property
    def ns(self) -> int:
        return _ns(self.end) - _ns(self.start)


class TotalTime:
    """A sum of spans of time. On a virtual GPU, the lengths of the spans are worked out only when the sum (`ns`) is
    asked for."""

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
