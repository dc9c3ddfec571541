"""Starts and ends a recording by time, for programs without step boundaries. A thread of its own does this."""

from __future__ import annotations

import threading
from collections.abc import Callable

from unstall.guest import device
from unstall.guest.threads import start_thread

_PATIENCE_S = 10.0  # wait for a first step boundary after CUDA was initialised
_LOOKS, _MOST_LOOKS, _LOOK_S = 2, 60, 1.0  # checks of whether the device is in use
_FOR_S = 2.0


class ByTime:
    """A timer that begins and ends a recording, on a thread of its own.

    It calls the function `begin` after `after_s` seconds, and the function `end` `for_s` seconds
    after `begin`. If `is_wanted` returns False when the timer starts, it calls neither function.
    """

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
        """Makes a timer, which does not run yet.

        Args:
            after_s: The time at which to begin, in s. If None, begins as soon as the device seems
                to be in use.
            for_s: How long to record, in s. If None, records for 2 s.
            passed_s: Returns how many seconds of `after_s` have passed.
            is_wanted: Returns whether a recording by time is still wanted.
            may_begin: Returns whether the recording may begin at this moment.
            begin: Begins the recording. Returns whether the recording has begun.
            end: Ends the recording.
        """
        self._after_s, self._for_s = after_s, for_s
        self._passed_s = passed_s
        self._is_wanted, self._may_begin = is_wanted, may_begin
        self._begin, self._end = begin, end
        self._over = threading.Event()

    @property
    def is_due(self) -> bool:
        """Whether `after_s` seconds have passed and the recording may begin now. False if `after_s` is None."""
        after_s = self._after_s
        return after_s is not None and self._passed_s() >= after_s and self._is_wanted() and self._may_begin()

    def start(self, *, begun: bool = False) -> None:
        """Starts the timer's thread. Call it only after CUDA was initialised: before that, a
        program may fork its workers, and no thread of unstall may run during a fork.

        Args:
            begun: Whether the recording has already begun. If so, only the recording's end is
                timed.
        """
        if begun or self._is_wanted():
            start_thread(lambda: self._watch(begun))

    def stop(self) -> None:
        """Stops the timer. A recording that it has begun ends now. If it has not begun one, it never will."""
        self._over.set()

    def _watch(self, begun: bool) -> None:
        if begun or self._begins():
            self._over.wait(_FOR_S if self._for_s is None else self._for_s)
            self._end()

    def _begins(self) -> bool:
        if self._after_s is None:
            self._over.wait(_PATIENCE_S)
            self._wait_for_work()
        else:
            self._over.wait(max(0.0, self._after_s - self._passed_s()))
        while self._is_wanted() and not self._may_begin():
            if self._over.wait(_LOOK_S):
                return False
        return self._begin()

    def _wait_for_work(self) -> None:
        """Waits until two checks in a row have found that the program has allocated device memory.
        The wait has a limit.

        A program may prepare its data for a long time before it uses the device. But a program that
        replays CUDA graphs allocates no memory.
        """
        used, before = 0, device.allocations()
        for _ in range(_MOST_LOOKS):
            if used == _LOOKS or not self._is_wanted() or self._over.wait(_LOOK_S):
                return
            now = device.allocations()
            used, before = used + 1 if now != before else 0, now
