"""Finds the lines of the user's code that lead to a call."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import TypeAlias

from unstall.blaming.result import Line
from unstall.frameworks import is_users

Place: TypeAlias = tuple[str, int, str]
"""A line of source code: `(file, line, function)`."""
Stack: TypeAlias = tuple[Place, ...]
"""Lines of the user's code that called each other, innermost first."""

_DEPTH = 3


def user_stack() -> Stack:
    """Returns the lines of the user's code in the calling thread's stack, innermost first. Returns
    at most three lines.
    """
    found: list[Place] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if is_users(code.co_filename):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


def lines_of(stack: Stack) -> tuple[Line, ...]:
    """Converts the lines of a stack to `Line` objects, which also have the text of the line."""
    return tuple(Line(file, line, function, linecache.getline(file, line).strip()) for file, line, function in stack)
