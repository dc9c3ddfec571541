"""Progress on stderr: a bar while a large trace is read, and a line during other work that takes long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
_SOON_S, _AGAIN_S = 2.0, 1.0  # work of less than that needs no line
_LARGE_BYTES = 8 << 20  # smaller files are read before a bar could be drawn


@contextmanager
def loading(path: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Shows a bar on stderr while a large file is read.

    Yields a function to call with `(bytes read, size of the file in bytes)`; None if no bar is
    shown. `path` is the file.
    """
    if quiet or not sys.stderr.isatty() or _size(path) < _LARGE_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = TextColumn("reading"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_size(path))
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def ranks_read(*, quiet: bool) -> Iterator[Progress | None]:
    """Shows on stderr how many ranks have been read. Yields a function to call with `(ranks done,
    ranks in all)`; None if nothing is shown.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = "reading ranks", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    # Refreshed as ranks are done, not by a thread: a process with threads cannot be forked for reading.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total, refresh=True)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


@contextmanager
def working(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Shows the text `what` on stderr while the block runs, if the block takes more than two
    seconds and `quiet` is not set.

    On a terminal, the line also shows how long the block has taken. The line disappears when the
    block ends.
    """
    if quiet or sys.stderr is None:
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, over), name="unstall", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _tell(what: str, over: threading.Event) -> None:
    began = time.monotonic()
    if over.wait(_SOON_S):
        return
    with suppress(OSError, ValueError):  # stderr may be closed
        if not sys.stderr.isatty():
            print(f"unstall: {what} …", file=sys.stderr, flush=True)
            return
        while True:
            print(f"\r\x1b[Kunstall: {what} … {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
            if over.wait(_AGAIN_S):
                break
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
