"""The journal of a recording: what happened when, one JSON object a line, readable at any moment."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, TypeAlias

from unstall.json_lines import append_json_lines

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
        """Append one event, `at` that time (perf_counter ns; now, if None). Raises OSError if the disk is full."""
        if self._closed:
            return
        append_json_lines(self._path, [{"event": event, "at": time.perf_counter_ns() if at is None else at, **fields}])

    def close(self) -> None:
        """Write nothing any more, whoever still tries."""
        self._closed = True


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
