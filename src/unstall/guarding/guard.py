"""`Guard`: what `unstall.no_sync` does at a wait of the CPU for the GPU, and the waits that it has observed."""

from __future__ import annotations

from typing import Literal, get_args

from unstall.errors import SyncError, UsageError
from unstall.guarding.kinds import Kind
from unstall.guarding.wait import Wait

Mode = Literal["error", "warn", "count"]
MOST_KEPT = 10_000
_MODES = get_args(Mode)


class Guard:
    """A guard: collects the waits of the CPU for the GPU that occur in a block of `unstall.no_sync`.

    Attributes:
        mode: What the guard does at a wait. "error": it raises an error. "warn": it shows a warning. "count": it only
            counts the wait.
        waits: The first 10,000 waits, in the order in which they occurred.
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
        """Adds one to `count`. Appends the wait to `waits` if `waits` has fewer than 10,000 waits."""
        self.count += 1
        if self.count <= MOST_KEPT:
            self.waits.append(wait)

    def refuse(self, wait: Wait) -> SyncError:
        """Counts and stores a wait that the guard does not allow. Returns a SyncError for this wait, which the caller
        must raise."""
        self.note(wait)
        return SyncError(str(wait), wait)
