"""Reads a recorded run from a file into a `Timeline`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unstall.read.assemble import assemble
from unstall.read.kineto import read as read_kineto
from unstall.timeline.columns import Timeline

__all__ = ["is_timeline", "load"]


def load(path: str | Path, *, progress: Callable[[int, int], None] | None = None) -> Timeline:
    """Read a trace of `unstall run` or `torch.profiler`, or a saved timeline.

    The kind of the file is found from its content, not from its name.

    Several threads may call it at the same time.

    Args:
        path: The file: Chrome trace JSON, plain or compressed (gzip, zstd), or a file that `Timeline.save` wrote.
        progress: Called with (bytes of the file read so far, its size in bytes) while a trace is read.

    Returns:
        The whole run. `Timeline.meta.notes` lists repairs and dropped events.

    Raises:
        TraceError: The file cannot be opened, is neither a trace nor a saved timeline, or exceeds a size limit.
    """
    path = Path(path)
    if is_timeline(path):
        from unstall.timeline import store  # here, since it takes 3 ms, and most files are traces

        return store.load(path)
    return assemble(read_kineto(path, progress))


def is_timeline(path: Path) -> bool:
    """Returns whether the file begins like a zip file, as saved timelines do."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False
