"""Finds, in a stack, the line of the program's own code."""

from __future__ import annotations

from unstall.frameworks import is_framework
from unstall.lines.clock import line_at
from unstall.lines.places import Shortened
from unstall.virtual.log import Stack


def own_place(stack: Stack, folder: str) -> tuple[str, str] | None:
    """Returns the innermost line of the program's own code in the stack, in the form ("train.py:41", "forward"). If
    the stack has no line of the program's own code, returns the stack's innermost line. Returns None if the stack is
    empty. Paths are relative to `folder`.
    """
    short = Shortened(folder)
    own = (frame for frame in stack if not is_framework(short[frame[0].co_filename]))
    frame = next(own, next(iter(stack), None))
    if frame is None:
        return None
    code, offset = frame
    return f"{short[code.co_filename]}:{line_at(code, offset)}", code.co_qualname
