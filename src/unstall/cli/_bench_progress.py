"""Shows what `unstall bench` is doing, in a line on stderr, if stderr is a terminal. The line disappears at the end."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_APART_S = 0.1
_SOON_S = 2.0  # before this, the elapsed time is not shown


@contextmanager
def shown(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a text on stderr, together with the time since the start.

    The time on the line changes only when the function is called, because a thread that updates it
    would slow down the measured code. If `quiet` is set, or if stderr is not a terminal, the
    function does nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield _unseen
        return
    began = at = time.monotonic()
    last = ""

    def tell(text: str) -> None:
        nonlocal at, last
        now, stage = time.monotonic(), text.partition(":")[0]
        if stage == last and now - at < _APART_S:
            return
        at, last = now, stage
        spent = f", {now - began:.0f} s" if now - began >= _SOON_S else ""
        room = shutil.get_terminal_size().columns - 1
        _write(f"\r\x1b[K{f'measuring: {text}{spent}'[:room]}")

    try:
        yield tell
    finally:
        _write("\r\x1b[K")


def _unseen(_: str) -> None:
    pass


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
