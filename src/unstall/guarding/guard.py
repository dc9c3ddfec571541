"""`Guard`: the mode of a guard, and the waits that it saw."""

from __future__ import annotations

from typing import Literal, get_args

from unstall.errors import SyncError, UsageError
from unstall.guarding.kinds import Kind
from unstall.guarding.wait import Wait

Mode = Literal["error", "warn", "count"]
MOST_KEPT = 10_000
_MODES = get_args(Mode)


class Guard:
    """Collects the waits that occur under one guard.

    Attributes:
        mode: What happens at a wait. "error": an error is raised. "warn": a warning is shown. "count": the wait is
            only counted.
        waits: The first 10,000 waits, in order.
        count: The number of all waits.
    """

    def __init__(self, mode: Mode) -> None:
        if mode not in _MODES:
            raise UsageError(
                f"no_sync({mode!r}): the mode is 'error', 'warn' or 'count', as in @unstall.no_sync('warn')"
            )
        self.mode: Mode = mode
        self.ignored: frozenset[Kind] = frozenset()  # kinds of waits that are not reported
        self.waits: list[Wait] = []
        self.count = 0
        self.refused: SyncError | None = None  # the first that the driver was made to return in its own words

    def note(self, wait: Wait) -> None:
        """Adds a wait to `waits` and `count`."""
        self.count += 1
        if self.count <= MOST_KEPT:
            self.waits.append(wait)

    def refuse(self, wait: Wait) -> SyncError:
        """Adds a wait as `note` does. Returns the SyncError for the wait, and does not raise it."""
        self.note(wait)
        return SyncError(str(wait), wait)
