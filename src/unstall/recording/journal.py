"""Writes and reads the journal of a recording: a file of events with their times, one JSON object
per line. It can be read while it is written.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, TypeAlias

from unstall.json_lines import append_json_lines

Event: TypeAlias = dict[str, Any]
NAME = "journal.jsonl"


class Journal:
    """Appends events to a recording's journal, which is a file of JSON lines. The events written so
    far are kept if the program is killed.

    Each event is written by one `write` system call. No file is held open, because a program that
    becomes a daemon closes all files that it does not know. If it closed the journal's file, events
    would go to the next file that the program opens.
    """

    def __init__(self, folder: str | Path) -> None:
        self._path = os.path.abspath(Path(folder) / NAME)  # noqa: PTH100 - as text, which opens faster
        self._closed = False

    def write(self, event: str, *, at: int | None = None, **fields: object) -> None:
        """Appends one event to the journal.

        Args:
            event: The name of the event.
            at: The time of the event, in ns of `time.perf_counter_ns`. If it is None, the current
                time is used.
            fields: Further facts about the event, as values that JSON can have.

        Raises:
            OSError: The disk is full.
        """
        if self._closed:
            return
        append_json_lines(self._path, [{"event": event, "at": time.perf_counter_ns() if at is None else at, **fields}])

    def close(self) -> None:
        """Closes the journal. All later calls of `write` do nothing."""
        self._closed = True


class Follower:
    """Reads the journal of a recording while a program writes it. A journal that does not exist yet has no events."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / NAME
        self._read_bytes = 0

    def events(self) -> list[Event]:
        """Returns the events that were written since the previous call, in order. An event whose
        line is incomplete is returned by a later call, when the line is complete.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read_bytes += len(whole) + len(newline)
        return [event for line in whole.split(b"\n") if (event := _parse(line)) is not None]


def read(folder: str | Path) -> list[Event]:
    """Returns all events in the journal in `folder`, in order. Omits the last line if it was cut short."""
    return Follower(folder).events()


def _parse(line: bytes) -> Event | None:
    """Returns the event in one line of a journal. Returns None if the line is no event, or if it is
    incomplete because the program was killed while it wrote.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
