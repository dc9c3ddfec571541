"""A progress bar on stderr while a large trace is read, where somebody is there to see it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], None]
_LARGE_BYTES = 8 << 20  # smaller ones are read before a bar could be drawn


@contextmanager
def loading(path: str, *, quiet: bool) -> Iterator[Progress | None]:
    """What to call with (bytes read, bytes in all), or None where no bar is wanted."""
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
