"""The one recording of this process: ended when the process ends, forgotten in its forked children.

Most calls of `unstall.step()` are in a program that nothing records: what recording takes is not imported here.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from unstall.errors import UsageError
from unstall.interrupts import remember_interrupt
from unstall.record.tally import EXPLICIT, LOADER

if TYPE_CHECKING:
    from unstall.virtual.process.machine import Machine


class Active(Protocol):
    """A recording that is armed or running."""

    under_way: str
    """That it is, and what to do about it: a sentence for whoever would begin another."""

    def mark(self, kind: str, who: int = 0) -> None: ...

    def end(self, why: str) -> None: ...

    def forked(self) -> None: ...


RECORDING = (
    "a recording of this process is under way: end it before another begins; or, if it is that of `unstall run`, start "
    "the program by plain python"
)


class _Slot:
    """Holds the recording. Callbacks on a fork cannot be taken back, so one is registered for good."""

    def __init__(self) -> None:
        self.recording: Active | None = None
        self._watches_forks = False

    def watch_forks(self) -> None:
        if not self._watches_forks:
            os.register_at_fork(after_in_child=self.forked)
            self._watches_forks = True

    def forked(self) -> None:
        recording, self.recording = self.recording, None
        if recording is not None:
            atexit.unregister(_exit)
            recording.forked()


_slot = _Slot()


def virtual_machine() -> Machine | None:
    """That of this process's virtual GPU, which sees all that a recorder would; None where it has none."""
    module = sys.modules.get("unstall.virtual.process.machine")
    return module.current() if module is not None else None


def activate(recording: Active) -> None:
    """Make it the process's recording. Raises UsageError while there is another."""
    if _slot.recording is not None:
        raise UsageError(_slot.recording.under_way)
    _slot.recording = recording
    _slot.watch_forks()
    atexit.register(_exit)


def deactivate(recording: Active) -> None:
    """It is over; another may begin."""
    if _slot.recording is recording:
        _slot.recording = None
        atexit.unregister(_exit)


def current() -> Active | None:
    """The process's recording, if there is one."""
    return _slot.recording


class HandedOn:
    """An iterator whose items a helper hands on, one for each step of the program: that is marked then, and what it
    iterates itself marks nothing, on whichever thread and however far ahead."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items

    def __iter__(self) -> HandedOn:
        return self

    def __next__(self) -> Any:
        if _slot.recording is None:  # nothing is marked, unless a recording begins during this very item
            return next(self._items)
        _fetching.depth = getattr(_fetching, "depth", 0) + 1
        try:
            return next(self._items)
        finally:
            _fetching.depth -= 1


def is_fetching() -> bool:
    """Whether this thread is within a HandedOn."""
    return getattr(_fetching, "depth", 0) > 0


def handed(source: object) -> None:
    """The program has got its next item of that loader, or of a function that is mapped: a step begins."""
    if _slot.recording is not None and not is_fetching():  # else whoever fetches hands it on
        _slot.recording.mark(LOADER, id(source))


def step() -> None:
    """A step of the program ends here. Where this is called, nothing else counts as the end of a step."""
    if is_aside():
        return
    if _slot.recording is not None:
        _slot.recording.mark(EXPLICIT)
    for note in getattr(_noting, "steps", ()):
        note(EXPLICIT, 0)


@contextmanager
def noting(note: Callable[[str, int], None]) -> Iterator[None]:
    """Have this thread's `step`s within it told as marks are, whether or not there is a recording."""
    before = getattr(_noting, "steps", ())
    _noting.steps = (*before, note)
    try:
        yield
    finally:
        _noting.steps = before


@contextmanager
def aside() -> Iterator[None]:
    """What this thread does within it marks no steps: it is no part of the program, as a run that proves something."""
    _aside.depth = getattr(_aside, "depth", 0) + 1
    try:
        yield
    finally:
        _aside.depth -= 1


def is_aside() -> bool:
    """Whether this thread is within that."""
    return getattr(_aside, "depth", 0) > 0


_fetching = threading.local()
_noting = threading.local()
_aside = threading.local()


def _exit() -> None:
    recording = _slot.recording
    if recording is not None:
        recording.end("exit")
        remember_interrupt()
