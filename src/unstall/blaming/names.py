"""How reports name lines and streams."""

from __future__ import annotations

from unstall.blaming.result import Line
from unstall.document.plain import plain, short


def place(line: Line) -> str:
    """Returns a line and its function as text: "train.py:12 in main"."""
    return f"{at_line(line)} in {short(line.function)}"


def at_line(line: Line) -> str:
    """Returns a line as text: "train.py:12"."""
    return f"{plain(line.file)}:{line.line}"


def stream_name(handle: int, *, device: int = 0, thread: int = 0) -> str:
    """Returns the name that reports use for a CUDA stream.

    Args:
        handle: The handle of the stream; 0 for a default stream.
        device: If the stream is a default stream, the index of its device. 0 for all other streams,
            or if it is not known.
        thread: If the stream is a per-thread default stream, its thread. 0 for all other streams.
    """
    if thread:
        return f"the default stream of thread {thread}"
    if handle:
        return f"stream {handle:#x}"
    return f"the default stream of cuda:{device}" if device else "the default stream"
