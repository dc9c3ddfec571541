"""Writes trace files in the Chrome trace format, which Perfetto can open."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from unstall.files import writing_atomically


class Text:
    """Writes events of a Chrome trace as JSON text. Times in the text are microseconds after
    `zero_ns`, exact to the nanosecond. `zero_ns` is an argument of the constructor.
    """

    def __init__(self, zero_ns: int) -> None:
        self._zero_ns = zero_ns
        self._names: dict[str, str] = {}

    def name(self, text: str) -> str:
        """Returns `text` as a JSON string, in quotes."""
        found = self._names.get(text)
        if found is None:
            found = self._names[text] = msgspec.json.encode(readable(text)).decode()
        return found

    def span(self, category: str, name: str, process: int, thread: int, start: int, end: int, arguments: str) -> str:
        """Returns an event that has a begin and an end ("ph": "X"), as JSON.

        Args:
            category: The event's category.
            name: The event's name.
            process: Process id.
            thread: Thread id.
            start: When the event begins, in ns.
            end: When the event ends, in ns.
            arguments: The members of the event's "args" object, as JSON without braces.
        """
        since, lasted = start - self._zero_ns, max(end - start, 0)
        return (
            f'{{"ph":"X","cat":"{category}","name":{self.name(name)},"pid":{process},"tid":{thread},'
            f'"ts":{micros(since)},"dur":{micros(lasted)},"args":{{{arguments}}}}}'
        )


def readable(value: Any) -> Any:
    """Returns a JSON value in which "?" replaces each character that UTF-8 cannot encode. File
    names may contain such characters.
    """
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case list():
            return [readable(each) for each in value]
        case dict():
            return {readable(key): readable(each) for key, each in value.items()}
    return value


def micros(ns: int) -> str:
    """Returns nanoseconds as microseconds in decimal notation, exactly: "1.500" for 1500."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def thread_names(names: dict[int, str], process: int, text: Text) -> Iterator[str]:
    """Yields the events of a Chrome trace that name the threads of a process, as JSON.

    Args:
        names: Maps a thread id to the thread's name.
        process: Process id.
        text: Writes the names as JSON.
    """
    for thread, name in names.items():
        yield (
            f'{{"ph":"M","name":"thread_name","pid":{process},"tid":{thread},"ts":0,'
            f'"args":{{"name":{text.name(name)}}}}}'
        )


def write(path: Path, head: dict[str, object], events: Iterable[str]) -> None:
    """Writes a Chrome trace to a file, compressed if the file's name ends in .gz. The file appears
    only when it is complete.

    The header of a compressed file contains the time of writing (RFC 1952). So it can be told when
    the trace was written even if the file was copied.

    Args:
        path: The file to write.
        head: The members of the trace's JSON object that come before its events.
        events: The events, as JSON.

    Raises:
        UsageError: The file cannot be written.
    """
    with writing_atomically(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=5) as packed:
                _write(packed, head, events)
        else:
            _write(file, head, events)


def _write(file: IO[bytes] | gzip.GzipFile, head: dict[str, object], events: Iterable[str]) -> None:
    file.write(msgspec.json.encode(head)[:-1] + b',"traceEvents":[\n')
    buffer: list[str] = []
    before = ""
    for event in events:
        buffer.append(event)
        if len(buffer) == 10_000:
            file.write((before + ",\n".join(buffer)).encode())
            buffer, before = [], ",\n"
    if buffer:
        file.write((before + ",\n".join(buffer)).encode())
    file.write(b"\n]}\n")
