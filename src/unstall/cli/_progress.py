"""A progress bar on stderr while a large trace is read, if stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
_LARGE_BYTES = 8 << 20  # smaller files are read before a bar could be drawn


@contextmanager
def loading(path: str, *, quiet: bool) -> Iterator[Progress | None]:
    """Yields a function to call with (bytes read, total bytes), or None if no bar is wanted."""
    if quiet or not sys.stderr.isatty() or _size(path) < _LARGE_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = TextColumn("reading"), BarColumn(), DownloadColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_size(path))
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
