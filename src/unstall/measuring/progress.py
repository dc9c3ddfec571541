"""Reports progress to a listener, but only between measured calls.

A thread that wakes up during a call would make the call longer.
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
    """Sends reports of progress to `listener` during a `with` block. If `listener` is None, sends no reports."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def begin(stage: str) -> None:
    """Reports that a stage of the measurement begins."""
    _stage.set(stage)
    tell("")


def tell(text: str) -> None:
    """Reports the progress of the current stage. Sends the listener a line with the stage's name and `text`."""
    listener = _listener.get()
    if listener is not None:
        listener(": ".join(part for part in (_stage.get(), text) if part))
