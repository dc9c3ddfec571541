"""Reads of the virtual clock that do not simulate the log at once."""

from __future__ import annotations

from collections.abc import Callable


class LateRead:
    """A read of the virtual clock that need not know its time yet.

    Attributes:
        at_ns: The time of the read in ns of the virtual clock; None until the read is simulated.
    """

    __slots__ = ("__weakref__", "_latest_ns", "_offset_ns", "at_ns")

    def __init__(self, latest_ns: Callable[[], int], offset_ns: int) -> None:
        """Begins a read whose time is not known.

        Args:
            latest_ns: A function that simulates the rest of the log, and returns the virtual time
                of the calling thread.
            offset_ns: What `ns` adds to the time of the read.
        """
        self.at_ns: int | None = None
        self._latest_ns = latest_ns
        self._offset_ns = offset_ns

    def ns(self) -> int:
        """Returns the time of the read, plus the offset, in ns. Simulates the log first if the time
        is not known yet. Raises UnstallError if the simulation failed.
        """
        latest = self._latest_ns() if self.at_ns is None else 0
        if self.at_ns is None:  # in a forked process, where nothing more is simulated
            self.at_ns = latest
        return self.at_ns + self._offset_ns
