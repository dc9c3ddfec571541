"""What lines and streams are called in reports."""

from __future__ import annotations

from unstall.blaming.result import Line
from unstall.document.plain import plain, short


def place(line: Line) -> str:
    """Returns a line with its function, as text."""
    return f"{at_line(line)} in {short(line.function)}"


def at_line(line: Line) -> str:
    """Returns a line as text."""
    return f"{plain(line.file)}:{line.line}"


def stream_name(handle: int, *, device: int = 0, thread: int = 0) -> str:
    """Returns what a stream is called.

    Default streams have no handle. `device`: the default stream's, if that is known. `thread`: the thread if the stream
    is that thread's default stream.
    """
    if thread:
        return f"the default stream of thread {thread}"
    if handle:
        return f"stream {handle:#x}"
    return f"the default stream of cuda:{device}" if device else "the default stream"
