"""Python warnings that are shown while a function runs: listened to, and kept from the user where the run is not hers.

`warnings.catch_warnings` would make Python forget which warnings it has shown already, and show them once more.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from unstall.guest.steps import ignoring_steps


@contextmanager
def heard(listens: Callable[[str], bool]) -> Iterator[None]:
    """Asks `listens` about each that this thread would show; those for which it says True are shown."""
    plain = warnings.showwarning
    thread = threading.get_ident()

    def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if threading.get_ident() != thread or listens(str(message)):
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:
            warnings.showwarning = plain


@contextmanager
def always(message: str, *, beside: str = "") -> Iterator[None]:
    """Shows all warnings that match `message`, and none that match `beside`, however often."""
    added: list[Any] = [("always", re.compile(message), Warning, None, 0)]
    if beside:
        added.insert(0, ("ignore", re.compile(beside), Warning, None, 0))
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:0] = added
    try:
        yield
    finally:
        for each in added:
            if each in filters:
                filters.remove(each)


@contextmanager
def unheard() -> Iterator[None]:
    """For runs that only prove something: what they warn of is not shown, and their steps are none of the program's."""
    with heard(lambda _: False), ignoring_steps():
        yield
