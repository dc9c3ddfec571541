"""Reports the progress of a measurement to a listener, but only between measured calls: a thread
that wakes up during a call would make the call longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Tell: TypeAlias = Callable[[str], None]

_listener: ContextVar[Tell | None] = ContextVar("listener", default=None)
_stage: ContextVar[str] = ContextVar("stage", default="")


@contextmanager
def heard_by(listener: Tell | None) -> Iterator[None]:
    """Returns a context manager. Within its block, reports on the progress of a measurement are
    sent to `listener`, a function that gets each report as text. If `listener` is None, no reports
    are sent.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def begin(stage: str) -> None:
    """Reports that the stage named `stage` of the measurement begins."""
    _stage.set(stage)
    tell("")


def tell(text: str) -> None:
    """Reports the progress of the current stage: sends the listener one line with the stage's name and `text`."""
    listener = _listener.get()
    if listener is not None:
        listener(": ".join(part for part in (_stage.get(), text) if part))
