"""Finds the line of source code that waits: the innermost Python frame of the user's code, the calls between this frame
and the wait, and the source text of the call that this frame makes."""

from __future__ import annotations

import ast
import linecache
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from unstall.frameworks import OURS, is_framework, is_users
from unstall.lines.places import Shortened

_SOURCES = (OURS + "guarding" + os.sep, OURS + "virtual" + os.sep)
_LONGEST_CODE = 80
_MOST_FRAMES = 64


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a wait in the program's source.

    The frame of the wait is the innermost Python frame that belongs neither to a framework nor to unstall. If there is
    no such frame, the frame of the wait is the innermost Python frame.

    Attributes:
        file: The path of the source file of the frame of the wait, shortened as in reports.
        line: The number of the source line that the frame of the wait executes.
        function: The name of the function of the frame of the wait.
        called_from: If the frame of the wait is in an installed package: "FILE:LINE" of the innermost frame in the
            user's code. Otherwise "".
        code: The source text of the call that the frame of the wait makes. "" if the text is not known.
        frames: The calls between the frame of the wait and the wait itself: texts that are joined by newlines,
            innermost call first. A Python frame is "FILE: FUNCTION". The first text is "<built-in method NAME>" for the
            function that the innermost frame calls. The last text is "<built-in method NAME>" for the function that the
            frame of the wait calls. Each of these two is missing if its name is not known.
        path: The full path of the source file of the frame of the wait.
        names: The global variables of the frame of the wait. The frame itself is not stored, because it would keep the
            program's tensors alive.
    """

    file: str
    line: int
    function: str
    called_from: str
    code: str
    frames: str
    path: str
    names: dict[str, Any]


NOWHERE = Place("", 0, "", "", "", "", "unstall", {})


def place_of(frame: FrameType | None) -> Place:
    """Returns the position of a wait in the program's source. `frame` is the innermost Python frame at the time of the
    wait, or None. Returns NOWHERE if `frame` is None, or if all frames belong to the guards or to the virtual GPU."""
    while frame is not None and frame.f_code.co_filename.startswith(_SOURCES):
        frame = frame.f_back
    if frame is None:
        return NOWHERE
    innermost, short = frame, _short()
    between: list[str] = []
    while frame is not None and _is_skipped(frame.f_code.co_filename):
        if len(between) < _MOST_FRAMES:
            between.append(f"{short[frame.f_code.co_filename]}: {frame.f_code.co_qualname}")
        frame = frame.f_back
    if frame is None:
        frame, between = innermost, []
    code = frame.f_code
    text, called = _call_at(code, frame.f_lasti)
    calls = _call_at(innermost.f_code, innermost.f_lasti)[1] if between else ""
    between = [_built_in(calls), *between, _built_in(called)]
    return Place(
        file=short[code.co_filename],
        line=frame.f_lineno or code.co_firstlineno,
        function=code.co_qualname,
        called_from=_called_from(frame),
        code=text,
        frames="\n".join(filter(None, between)),
        path=code.co_filename,
        names=frame.f_globals,
    )


def _built_in(name: str) -> str:
    return f"<built-in method {name}>" if name else ""


def _called_from(frame: FrameType) -> str:
    if is_users(frame.f_code.co_filename):
        return ""
    outer = frame.f_back
    while outer is not None and not is_users(outer.f_code.co_filename):
        outer = outer.f_back
    return f"{_short()[outer.f_code.co_filename]}:{outer.f_lineno}" if outer is not None else ""


@lru_cache(4096)
def _is_skipped(file: str) -> bool:
    return file.startswith(OURS) or is_framework(file)


@lru_cache(1)
def _short() -> Shortened:
    try:
        return Shortened(os.getcwd())  # noqa: PTH109 - a str is needed
    except OSError:  # the folder is gone
        return Shortened("")


@lru_cache(4096)
def _call_at(code: CodeType, instruction: int) -> tuple[str, str]:
    """Returns (source, name): the source text of the call that a bytecode instruction belongs to, and the name of the
    called function. If the source text is not known, `source` is "". If the name is not known, `name` is ""."""
    start, end, column, end_column = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    if start is None or end is None or column is None or end_column is None:
        return "", ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(start, end + 1)]
    lines[-1] = lines[-1][:end_column]  # the columns count bytes
    lines[0] = lines[0][column:]
    texts = [line.decode(errors="replace").strip() for line in lines]
    expression = _expression(" ".join(texts))
    text = " ".join(texts) if expression is not None else texts[0].removesuffix(":")
    return (text if len(text) <= _LONGEST_CODE else ""), _called_name(expression)


def _expression(text: str) -> ast.expr | None:
    """Parses a text as an expression. Returns None if the text is a statement, such as the head of a `for` loop."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _called_name(expression: ast.expr | None) -> str:
    """Returns the name of the function that an expression calls, such as "item" for "loss.item()". Returns "" if the
    expression is not a call."""
    function = expression.func if isinstance(expression, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
