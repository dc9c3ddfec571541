"""Finds, in a Python stack, the line of the program's own code."""

from __future__ import annotations

from unstall.frameworks import is_framework
from unstall.lines.clock import line_at
from unstall.lines.places import Shortened
from unstall.virtual.log import Stack


def own_place(stack: Stack, folder: str) -> tuple[str, str] | None:
    """Returns the innermost line of a stack that is the program's own, and the name of its
    function. Example: `("train.py:41", "forward")`. A line counts as the program's own unless it
    belongs to torch, NumPy, Python's standard library or unstall.

    If no line is the program's own, returns the innermost line of all. Returns None if the stack is
    empty.

    Args:
        stack: The stack.
        folder: The folder to which the paths in the result are relative.
    """
    short = Shortened(folder)
    own = (frame for frame in stack if not is_framework(short[frame[0].co_filename]))
    frame = next(own, next(iter(stack), None))
    if frame is None:
        return None
    code, offset = frame
    return f"{short[code.co_filename]}:{line_at(code, offset)}", code.co_qualname
