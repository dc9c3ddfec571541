"""Reads `places.jsonl`. This file lists the stacks, annotated spans, lines and threads that a
recording met, and gives each a number.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstall.frameworks import OURS, is_framework
from unstall.lines.clock import PLACES

Frame = tuple[str, int, str]
"""A frame of a stack: (path of the file, line number, name of the function)."""


@dataclass(slots=True)
class LinePlaces:
    """The stacks, annotated spans, lines and threads that a recording met. Each has a number, by
    which other files of the recording name it.

    Paths of files are as short as `Shortened` makes them.

    Attributes:
        stacks: Maps the number of a stack to the frames of the stack, innermost frame first.
        spans: Maps the number of an annotated span to the name of the span. An annotated span is a
            stretch of the run that has a name, such as a call of `backward()`.
        lines: Maps the number of an executed line to (path of the file, line number, name of the
            function).
        clocked: Maps the number that the line clock gave to a thread to the native id of the
            thread.
        threads: Maps the native id of a Python thread to the name of the thread.
    """

    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)  # innermost first
    spans: dict[int, str] = field(default_factory=dict)
    lines: dict[int, Frame] = field(default_factory=dict)
    clocked: dict[int, int] = field(default_factory=dict)  # native ids of the line clock's threads
    threads: dict[int, str] = field(default_factory=dict)  # names of Python's threads, by native id


def read_places(folder: Path, started_in: str) -> LinePlaces:
    """Reads the file `places.jsonl` of a recording: all its stacks, annotated spans, lines and
    threads. Skips a line of the file that is incomplete because the program was killed. Returns an
    empty `LinePlaces` if there is no such file.

    Args:
        folder: The folder that contains `places.jsonl`.
        started_in: The folder in which the recorded program started. Paths below it are made
            relative to it.
    """
    places, short = LinePlaces(), Shortened(started_in)
    try:
        text = (folder / PLACES).read_bytes()
    except FileNotFoundError:
        return places
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        _add(places, entry, short)
    return places


def _add(places: LinePlaces, entry: dict[str, Any], short: Shortened) -> None:
    match entry:
        case {"stack": number, "frames": frames}:
            places.stacks[number] = tuple((short[file], line, function) for file, line, function in frames)
        case {"place": number, "file": file, "line": line, "function": function}:
            places.lines[number] = (short[file], line, function)
        case {"span": number, "name": name}:
            places.spans[number] = name
        case {"thread": number, "id": native_id, "name": name}:
            places.clocked[number] = native_id
            places.threads.setdefault(native_id, name)
        case {"python_thread": native_id, "name": name}:
            places.threads[native_id] = name


_INSTALLED = re.compile(r"^.*/(?:site-packages|dist-packages)/|^.*/lib/python3\.\d+/(?!site-packages|dist-packages)")


class Shortened(dict[str, str]):
    """A dict from paths to shorter paths, which fills itself: `shortened[path]` works out the short
    path of any path.

    A path below the folder in which the program started is made relative to this folder. A path
    below a folder of installed packages is made relative to that folder. The path of a user's file
    is not shortened if the short path would look like the path of a framework's file.
    """

    def __init__(self, started_in: str) -> None:
        self._folder = started_in.rstrip(os.sep) + os.sep

    def __missing__(self, path: str) -> str:
        if path.startswith(OURS):
            found = "unstall/" + path.removeprefix(OURS)
        else:
            short = _INSTALLED.sub("", path).removeprefix(self._folder)
            found = short if is_framework(short) == is_framework(path) else path
        self[path] = found
        return found
