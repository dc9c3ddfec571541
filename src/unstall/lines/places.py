"""Reads `places.jsonl`: which stack, line or thread each number in a recording stands for."""

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
"""File, line, function."""


@dataclass(slots=True)
class LinePlaces:
    """The stacks, lines and threads that the numbers in a recording stand for.

    Paths are relative to the folder in which the program started.

    Attributes:
        stacks: The frames of each stack, innermost first, by the stack's number.
        spans: The name of each annotated span, by the span's number.
        lines: The file, the line and the function of each line that ran, by its number.
        clocked: The native id of each thread that the line clock followed, by the clock's number for the thread.
        threads: The name of each Python thread, by its native id.
    """

    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)  # innermost first
    spans: dict[int, str] = field(default_factory=dict)
    lines: dict[int, Frame] = field(default_factory=dict)
    clocked: dict[int, int] = field(default_factory=dict)  # native ids of the line clock's threads
    threads: dict[int, str] = field(default_factory=dict)  # names of Python's threads, by native id


def read_places(folder: Path, started_in: str) -> LinePlaces:
    """Reads `places.jsonl` in `folder`: all stacks, lines and threads of a recording. Skips an entry that was cut off.

    `started_in` is the folder in which the program started; paths become relative to it.
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
    """Maps each path to a shorter path. The short path leaves out the folder in which the program started, or the
    folder of installed packages.

    If the short path of a user's file would look like the path of a framework's file, the path is not shortened.
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
