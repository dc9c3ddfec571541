"""Reads the stacks of Python threads from the text that faulthandler writes."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass

from unstall.blaming.result import Line
from unstall.frameworks import is_users

_THREAD = re.compile(r"(?:Current t|T)hread 0x([0-9a-f]{1,16}) ")
_FRAME = re.compile(r'  File "(.{0,4096})", line (\d{1,9}) in (.{0,1000})')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_DISTRIBUTED = "torch/distributed/distributed_c10d.py"


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of one Python thread. `thread` is the thread's identifier. `frames` has the lines
    of the stack, innermost first.
    """

    thread: int
    frames: tuple[Line, ...]


def parse(text: str) -> list[Stack]:
    """Reads the stacks of Python threads from a text that faulthandler wrote."""
    found: list[tuple[int, list[Line]]] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            found.append((int(thread[1], 16), []))
        elif found and (frame := _FRAME.match(line)):
            file = _unescaped(frame[1])
            number = int(frame[2])
            source = linecache.getline(file, number).strip() if is_users(file) else ""
            found[-1][1].append(Line(file, number, _unescaped(frame[3]), source))
    return [Stack(thread, tuple(frames)) for thread, frames in found if frames]


def users_line(frames: Sequence[Line]) -> Line | None:
    """Returns the innermost line of a stack that is in the user's code; None if no line is.

    `frames` are the lines of the stack, innermost first.
    """
    return next((frame for frame in frames if is_users(frame.file)), None)


def collective_in(frames: Sequence[Line]) -> str:
    """Returns the name of the function of `torch.distributed` in which a thread waits for other
    ranks; "" if the thread is in no such function.

    `frames` are the lines of the thread's stack, innermost first.
    """
    for frame in frames:
        if frame.file.endswith(_DISTRIBUTED) and not frame.function.startswith("_") and frame.function != "wrapper":
            return frame.function
    return ""


def _unescaped(text: str) -> str:
    plain = _ESCAPE.sub(lambda found: chr(min(int(found[1] or found[2] or found[3], 16), 0x10FFFF)), text)
    return plain.encode(errors="replace").decode()  # without lone surrogates
