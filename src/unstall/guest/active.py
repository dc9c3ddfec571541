"""Holds the active recording of this process. A process has at most one active recording. The recording ends when the
process ends. A forked child process has no active recording.

Most programs that call `unstall.step()` are not being recorded. So this module does not import modules that only a
recording needs.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Protocol

from unstall.errors import UsageError
from unstall.guest.interrupts import remember_interrupt


class Active(Protocol):
    """A recording of this process that has begun. It either waits for the first step of the program or is running."""

    under_way: str
    """The error message for a second recording that is started while this recording is active."""

    def step_boundary(self, kind: str, who: int = 0) -> None: ...

    def loop_ended(self, kind: str, who: int) -> None:
        """Notes that a loop has ended whose items set step boundaries. The arguments are those of `step_boundary`."""

    def end(self, why: str) -> None: ...

    def forked(self) -> None: ...


RECORDING = (
    "a recording of this process is under way: end it before another begins; or, if it is that of `unstall run`, start "
    "the program by plain python"
)


class _Slot:
    """Holds the active recording of this process. Registers at most one fork callback, because Python cannot unregister
    fork callbacks."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  # held while a recording becomes active
        self.recording: Active | None = None
        self.refusal: str | None = None
        self._watches_forks = False

    def watch_forks(self) -> None:
        if not self._watches_forks:
            os.register_at_fork(after_in_child=self.forked)
            self._watches_forks = True

    def forked(self) -> None:
        self.turn = threading.Lock()  # another thread may have held it
        recording, self.recording = self.recording, None
        if recording is not None:
            atexit.unregister(_exit)
            recording.forked()


_slot = _Slot()


def activate(recording: Active) -> None:
    """Makes a recording the active recording of this process. Ends the recording when the process exits.

    Raises:
        UsageError: Another recording is active.
    """
    with _slot.turn:
        if _slot.recording is not None:
            raise UsageError(_slot.recording.under_way)
        _slot.recording = recording
    _slot.watch_forks()
    atexit.register(_exit)


def deactivate(recording: Active) -> None:
    """Removes the active recording, so that a new recording may begin. Does nothing if `recording` is not the active
    recording."""
    if _slot.recording is recording:
        _slot.recording = None
        atexit.unregister(_exit)


def current() -> Active | None:
    """Returns the active recording of this process, or None if there is no active recording."""
    return _slot.recording


def refuse_recordings(why: str) -> None:
    """From now on, recordings that the program starts by `with unstall.record(...):` are refused in this process. `why`
    is the error message."""
    _slot.refusal = why


def refusal() -> str | None:
    """Returns the error message if recordings by `with unstall.record(...):` are refused in this process. Returns None
    if they are allowed."""
    return _slot.refusal


def _exit() -> None:
    recording = _slot.recording
    if recording is not None:
        recording.end("exit")
        remember_interrupt()
