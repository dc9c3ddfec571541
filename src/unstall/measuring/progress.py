"""What is being measured, told to whoever listens: between calls, as a thread that wakes in one is of its time."""

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
    """Tell it what is under way, while this lasts."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def begin(stage: str) -> None:
    """What is told from here on is of this."""
    _stage.set(stage)
    tell("")


def tell(text: str) -> None:
    """How far it is."""
    listener = _listener.get()
    if listener is not None:
        listener(": ".join(part for part in (_stage.get(), text) if part))
