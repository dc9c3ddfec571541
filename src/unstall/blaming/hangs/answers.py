"""Asks a process which of its streams have finished their work, and where its Python threads are.

A thread in that process (the agent, `_agent.c`) answers.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.blaming.hangs.child import ANSWERS, STACKS

DONE, NOT_READY, NOT_ASKED = 0, 600, -1
_HEAD = struct.Struct("<8sIIQII")
_ROW = struct.Struct("<iI")
_ASKED_AT = 8
_MOST_STACKS = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one process: which of its streams have finished their work, and where its
    Python threads are.

    The streams are in the order of the table `streams` in the ring file (the file in which the
    process records its work on streams).

    Attributes:
        results: For each stream, the CUresult with which the driver says whether the stream has
            finished its work. NOT_ASKED if the driver was not asked about the stream.
        last: For each stream, the number of the last work that had been put on it when the driver
            was asked.
        stacks: The text in which faulthandler wrote the Python stacks.
    """

    results: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    stacks: str = ""


def ask(folders: Sequence[Path], wait_s: float = 2.0) -> list[Answer | None]:
    """Asks several processes at the same time which of their streams have finished their work, and
    where their Python threads are.

    Args:
        folders: The folder of each process, to which the process writes its answer.
        wait_s: How long to wait for the answers, in s.

    Returns:
        An answer for each of `folders`; None if the process does not answer in time, or cannot
        answer.
    """
    questions = {folder: _question(folder) for folder in folders}
    until = time.monotonic() + wait_s
    open_ones = {folder: number for folder, number in questions.items() if number is not None}
    while time.monotonic() < until and not all(_is_answered(*each) for each in open_ones.items()):
        time.sleep(0.02)
    return [_answer(f) if f in open_ones and _is_answered(f, open_ones[f]) else None for f in questions]


def _question(folder: Path) -> int | None:
    """Asks the process that writes to `folder`. Returns the number of the question; None if the
    process has no agent (a thread that answers).
    """
    try:
        with (folder / ANSWERS).open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            asked = (struct.unpack_from("<I", memory, _ASKED_AT)[0] + 1) % 2**32
            struct.pack_into("<I", memory, _ASKED_AT, asked)
    except (OSError, ValueError, struct.error):
        return None
    return int(asked)


def _is_answered(folder: Path, number: int) -> bool:
    content = _content(folder)
    return len(content) >= _HEAD.size and (_HEAD.unpack_from(content)[2] - number) % 2**32 < 2**31


def _answer(folder: Path) -> Answer:
    content = _content(folder)
    _, _, _, _, streams, wrote_stacks = _HEAD.unpack_from(content)
    rows = [_ROW.unpack_from(content, at) for at in range(_HEAD.size, len(content) - _ROW.size + 1, _ROW.size)]
    rows = rows[:streams]
    stacks = ""
    if wrote_stacks:
        with (folder / STACKS).open("rb") as file:
            stacks = file.read(_MOST_STACKS).decode("ascii", errors="replace")
    return Answer(tuple(result for result, _ in rows), tuple(last for _, last in rows), stacks)


def _content(folder: Path) -> bytes:
    try:
        with (folder / ANSWERS).open("rb") as file:
            return file.read(1 << 16)
    except OSError:
        return b""
