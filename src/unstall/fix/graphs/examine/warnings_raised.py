"""Records Python warnings while a function runs, and hides the warnings of runs that only check a function.

`warnings.catch_warnings` is not used, because Python would then forget which warnings were shown, and would show these
warnings again.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from unstall.guest.steps import ignoring_steps


@contextmanager
def listening_to_warnings(is_shown: Callable[[str, bool], bool]) -> Iterator[None]:
    """During the block, calls `is_shown(text, again)` for each warning of this thread. `again` says whether Python
    would show the same warning a second time. If `is_shown` returns false, the warning is hidden."""
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
        if threading.get_ident() != thread or is_shown(
            str(message), not _is_noted(str(message), category, filename, lineno)
        ):
            plain(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:
            warnings.showwarning = plain


def _is_noted(text: str, category: type[Warning], filename: str, line: int) -> bool:
    """Returns whether Python has a record that this warning was shown. Python does not show a recorded warning again.

    Python records a warning in `__warningregistry__` of the module that warns, except if the filter's action is
    `always`. Libraries make Python forget its records, for example by `warnings.catch_warnings`. Python then shows the
    warning again.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    noted = frame.f_globals.get("__warningregistry__") or {}
    once = getattr(warnings, "onceregistry", {})
    return any(noted.get((text, category, at)) for at in (line, 0)) or bool(once.get((text, category)))


@contextmanager
def always_warning(message: str, *, beside: str = "") -> Iterator[None]:
    """During the block, shows every warning that matches `message`, and hides every warning that matches `beside`.

    `message` and `beside` are regular expressions. If `beside` is empty, no warnings are hidden.
    """
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
    """Hides warnings and ignores step boundaries during the block. The block runs the user's function only to check
    it."""
    with listening_to_warnings(lambda *_: False), ignoring_steps():
        yield
