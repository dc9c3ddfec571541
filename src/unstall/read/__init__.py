"""A file → a `Timeline`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unstall.read.assemble import assemble
from unstall.read.kineto import read as read_kineto
from unstall.timeline import store
from unstall.timeline.columns import Timeline

__all__ = ["load"]


def load(path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Read a trace that `torch.profiler` wrote, or a saved timeline; the content decides, not the name.

    `progress` is called with (bytes read, bytes in all). Raises TraceError if the file cannot be read.
    """
    path = Path(path)
    if store.is_timeline(path):
        return store.load(path)
    return assemble(read_kineto(path, progress))
