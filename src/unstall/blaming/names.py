"""How reports name lines and streams."""

from __future__ import annotations

from unstall.blaming.result import Line
from unstall.document.plain import plain, short


def place(line: Line) -> str:
    """Returns "train.py:12 in main" for a line."""
    return f"{at_line(line)} in {short(line.function)}"


def at_line(line: Line) -> str:
    """Returns "train.py:12" for a line."""
    return f"{plain(line.file)}:{line.line}"


def stream_name(handle: int, *, device: int = 0, thread: int = 0) -> str:
    """Returns the name of a stream in reports.

    `handle` is 0 for a default stream. Then `device` is the stream's device, or 0 if the device is not known. For a
    per-thread default stream, `thread` is the thread.
    """
    if thread:
        return f"the default stream of thread {thread}"
    if handle:
        return f"stream {handle:#x}"
    return f"the default stream of cuda:{device}" if device else "the default stream"
