"""A window by time, for programs without step boundaries: a thread of our own begins and ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from unstall.guest import device
from unstall.guest.threads import start_thread

_PATIENCE_S = 10.0  # after CUDA was initialised, for a first step boundary
_LOOKS, _MOST_LOOKS, _LOOK_S = 2, 60, 1.0  # whether the device is in use
_FOR_S = 2.0


class ByTime:
    """Calls `begin` when it is time, and `end` after that. What `is_wanted` says no to does not begin."""

    def __init__(
        self,
        after_s: float | None,
        for_s: float | None,
        *,
        passed_s: Callable[[], float],
        is_wanted: Callable[[], bool],
        may_begin: Callable[[], bool],
        begin: Callable[[], bool],
        end: Callable[[], None],
    ) -> None:
        """`passed_s` says how much of `after_s` is over, `may_begin` whether nothing is to be waited for. `begin` says
        whether it did."""
        self._after_s, self._for_s = after_s, for_s
        self._passed_s = passed_s
        self._is_wanted, self._may_begin = is_wanted, may_begin
        self._begin, self._end = begin, end
        self._over = threading.Event()

    def start(self) -> None:
        """Watch the clock: CUDA is there.

        Not earlier: a program that forks its workers should not find a thread of ours.
        """
        if self._is_wanted():
            start_thread(self._watch)

    def stop(self) -> None:
        """There is nothing to wait for any more."""
        self._over.set()

    def _watch(self) -> None:
        if self._after_s is None:
            self._over.wait(_PATIENCE_S)
            self._wait_for_work()
        else:
            self._over.wait(max(0.0, self._after_s - self._passed_s()))
        while self._is_wanted() and not self._may_begin():
            if self._over.wait(_LOOK_S):
                return
        if self._begin():
            self._over.wait(_FOR_S if self._for_s is None else self._for_s)
            self._end()

    def _wait_for_work(self) -> None:
        """Return once memory was asked for in two looks in a row: a program may prepare its data for long.

        One that replays CUDA graphs asks for none, and is not waited for without end.
        """
        used, before = 0, device.allocations()
        for _ in range(_MOST_LOOKS):
            if used == _LOOKS or not self._is_wanted() or self._over.wait(_LOOK_S):
                return
            now = device.allocations()
            used, before = used + 1 if now != before else 0, now
