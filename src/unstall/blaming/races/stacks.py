"""Finds the lines of the user's code that lead to a call."""

from __future__ import annotations

import linecache
import sys
from types import FrameType
from typing import TypeAlias

from unstall.blaming.result import Line
from unstall.frameworks import is_users

Place: TypeAlias = tuple[str, int, str]
"""The file, the line and the function of a frame."""
Stack: TypeAlias = tuple[Place, ...]
"""Places in the user's code, innermost first."""

_DEPTH = 3


def user_stack() -> Stack:
    """Returns the innermost lines of the user's code in the calling thread's stack: at most three lines."""
    found: list[Place] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < _DEPTH:
        code = frame.f_code
        if is_users(code.co_filename):
            found.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(found)


def lines_of(stack: Stack) -> tuple[Line, ...]:
    """Converts the lines of a stack to `Line` objects, and adds their source text."""
    return tuple(Line(file, line, function, linecache.getline(file, line).strip()) for file, line, function in stack)
