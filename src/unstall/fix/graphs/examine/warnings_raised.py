"""Notes Python warnings while a function runs, and hides warnings of runs that the user did not ask for.

`warnings.catch_warnings` is not used: Python would forget which warnings it has shown, and show them again.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from unstall.guest.steps import ignoring_steps


@contextmanager
def listening_to_warnings(is_shown: Callable[[str], bool]) -> Iterator[None]:
    """Calls `is_shown` with the text of each warning in this thread. If `is_shown` returns False, the warning is
    hidden."""
    plain = warnings.showwarning
    thread = threading.get_ident()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if threading.get_ident() != thread or is_shown(str(message)):
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:
            warnings.showwarning = plain


@contextmanager
def always_warning(message: str, *, beside: str = "") -> Iterator[None]:
    """Shows warnings that match `message` every time, and never those that match `beside` (regular expressions)."""
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
def silent_proof() -> Iterator[None]:
    """Hides warnings and ignores step boundaries. Used for runs that only prove something."""
    with listening_to_warnings(lambda _: False), ignoring_steps():
        yield
