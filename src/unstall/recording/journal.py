"""The journal of a recording: what happened when, one JSON object a line, readable at any moment."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]
_NAME = "journal.jsonl"


class Journal:
    """Appends to the journal of a folder. A line is one `write` to the system, so that a killed program keeps it.

    No file is held open: a program that closes all files it does not know, as daemons do, would have its own
    next file written into.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = os.path.abspath(Path(folder) / _NAME)  # noqa: PTH100 - as text, which opens faster
        self._closed = False

    def write(self, event: str, *, at: int | None = None, **fields: object) -> None:
        """Append one event, `at` that time (perf_counter ns; now, if None).

        What JSON does not know is stored as its text. Raises OSError where the disk takes no more.
        """
        if self._closed:
            return
        append(self._path, [{"event": event, "at": time.perf_counter_ns() if at is None else at, **fields}])

    def close(self) -> None:
        """Write nothing any more, whoever still tries."""
        self._closed = True


def append(path: str, entries: Sequence[dict[str, object]]) -> None:
    """Append these to a file of JSON lines, by one write to the system: a killed program keeps them.

    Raises OSError where the disk takes no more. Of what it did take nothing stays: half a line would spoil the next.
    """
    if not entries:
        return
    lines = b"".join(json.dumps(entry, default=str).encode() + b"\n" for entry in entries)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = os.write(file, lines)
        if written < len(lines):
            os.ftruncate(file, os.lseek(file, 0, os.SEEK_CUR) - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)


class Follower:
    """Reads a journal while it is being written. A journal that is not there yet has no events."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / _NAME
        self._read_bytes = 0

    def events(self) -> list[Event]:
        """The events written since the last call, in order. A line that is cut short counts once it is whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read_bytes += len(whole) + len(newline)
        return [event for line in whole.split(b"\n") if (event := _parse(line)) is not None]


def read(folder: str | Path) -> list[Event]:
    """All events of a folder's journal, in order; without the last where it was cut short."""
    return Follower(folder).events()


def _parse(line: bytes) -> Event | None:
    """The event of one line; None where a program that was killed left only a part of it, and others wrote on."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
