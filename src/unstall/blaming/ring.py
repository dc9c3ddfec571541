"""Reads ring files. In a ring file, `_marks.c` records the work that a process puts on each stream,
and how much of this work the device has done.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.blaming.demangle import demangled
from unstall.errors import TraceError

KERNEL, GRAPH, COPY, MEMSET, RECORD, WAIT, WAIT_VALUE, WRITE_VALUE = range(1, 9)
NEVER, BEGUN, FINISHED = 0, 2**32 - 1, 2**32 - 2
"""Special values in the table of what the device has done in each branch of a CUDA graph: it never
began the branch, it has begun it, or it has finished it. Any other value is the number of the last
work that it has done.
"""
MARKED = 1
"""The value of the field `marked` of a row if a mark was put on the stream right before the work of
this row. A mark is a number that the device writes when it reaches that point of the stream.
"""
_MAGIC = b"UNSTBLM1"
_STREAMS = 1024
_LONGEST_NAME = 1024
"""The maximum length of a kernel's name in bytes: LONGEST_NAME in `_ring.h`."""
_PULSE_BYTES = 1 << 17  # up to the end of the streams
_PARTS = ("slots", "streams", "captures", "lines", "stacks", "codes", "kernels", "text", "captured", "ring")
_ENTRY = [
    *((name, "<u8") for name in ("number", "time", "event")),
    *((name, "<u4") for name in ("stream", "line")),
    ("stack", "<i4"),
    *((name, "<u4") for name in ("kernel", "thread", "visit", "marked", "slot")),
    *(("kind", "<u2"), ("backward", "<u2"), ("value", "<u4")),
]
_OF_STREAM = ("thread", "line", "last", "marked", "settled", "gone")
_ROWS: dict[str, Any] = {
    "slots": "<u4",
    "streams": [("context", "<u8"), ("handle", "<u8"), *((n, "<u4") for n in _OF_STREAM)],
    "captures": [("capture", "<u8"), *((n, "<u4") for n in ("stream", "last", "marked", "line", "first", "is_origin"))],
    "lines": [(n, "<u4") for n in ("code", "number", "whose", "pinned")],
    "stacks": [("line", "<u4"), ("inner", "<u4"), ("outer", "<u4", 6)],
    "codes": [(n, "<u4") for n in ("file", "function", "first", "whose")],
    "kernels": [("hash", "<u8"), ("text", "<u4"), ("spare", "<u4")],
    "text": "u1",
    "captured": _ENTRY,
    "ring": _ENTRY,
}
_HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("next", "<u8"),
        ("used", "<u4", len(_PARTS)),
        ("part", [("at", "<u8"), ("rows", "<u8"), ("row_bytes", "<u8")], len(_PARTS)),
        ("error_time", "<u8"),
        ("error_number", "<u8"),
        *((n, "<u4") for n in ("error_code", "error_call", "error_thread", "error_line")),
        ("error_stack", "<i4"),
        ("error_spare", "<u4"),
        ("fields", "<u4", 8),
        *(
            (n, "<u4")
            for n in ("marks", "refused", "refusal", "lost_streams", "lost_captured", "closed", "process", "spare")
        ),
    ]
)
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of Python code, as a ring file has it (the file in which a process records its work on
    streams).

    Attributes:
        file: The file that contains the line.
        line: The line number.
        function: The function that contains the line.
        whose: Who wrote the file: 2 for the user, 1 for a library, 0 for a framework.
    """

    file: str
    line: int
    function: str
    whose: int


@dataclass(frozen=True)
class Ring:
    """The content of a ring file. In this file, a process records the last calls by which it put
    work on streams.

    An entry is the row of one such call. Entries are numbered from 1 in the order of the calls.

    Attributes:
        header: The header of the file.
        tables: The tables of the file, by name.
    """

    header: Any
    tables: dict[str, Rows]

    @cached_property
    def entries(self) -> Rows:
        """The newest entries, sorted by number. Each entry is the row of one call that put work on
        a stream.

        Older entries are missing, because newer ones have overwritten them in the file.
        """
        ring = self.tables["ring"]
        first = max(1, int(self.header["next"]) - len(ring))
        numbers = np.arange(first, int(self.header["next"]), dtype=np.uint64)
        found = ring[numbers % len(ring)]
        entries: Rows = found[found["number"] == numbers]
        return entries

    @cached_property
    def captured(self) -> Rows:
        """One row for each piece of work in CUDA graphs, as it was captured. Row 0 is unused."""
        return self.tables["captured"]

    @cached_property
    def done(self) -> list[int]:
        """For each row of the table `streams`, a number N: the stream's work up to the N-th call
        that put work on any stream is known to be done.

        Work is known to be done in three cases: the device wrote that it had reached the end of the
        work; the host waited for the work; or another stream waited for an event after the work,
        and then continued.
        """
        streams = self.tables["streams"]
        done = [
            max(self._whole(self.tables["slots"][number]), self._whole(row["settled"]))
            for number, row in enumerate(streams)
        ]
        waits = []
        for wait in self.entries[self.entries["kind"] == WAIT]:
            if (record := self.record_of(wait)) is not None:
                before = self._last_work(int(record["stream"]), int(record["number"]))
                waits.append((int(wait["stream"]), int(wait["number"]), int(record["stream"]), before))
        changed = True
        while changed:
            changed = False
            for stream, number, of, before in waits:
                if done[stream] > number and done[of] < before:
                    done[of], changed = before, True
        return done

    def record_of(self, wait: Any) -> Any | None:
        """Returns the call that recorded the event for which another call, `wait`, waits. Returns
        None if the file no longer has this call. Each of the two calls is a row of `entries`.
        """
        numbers, records = self._records.get(int(wait["event"]), ([], []))
        at = bisect_left(numbers, int(wait["number"]))
        return records[at - 1] if at else None

    @cached_property
    def _records(self) -> dict[int, tuple[list[int], list[Any]]]:
        """Maps an event to (numbers of the entries that recorded the event, these entries)."""
        found: dict[int, tuple[list[int], list[Any]]] = {}
        for record in self.entries[self.entries["kind"] == RECORD]:
            numbers, records = found.setdefault(int(record["event"]), ([], []))
            numbers.append(int(record["number"]))
            records.append(record)
        return found

    def of_stream(self, stream: int) -> Rows:
        """Returns the rows of `entries` that belong to one stream. `stream` is the index of the
        stream in the table `streams`.
        """
        return self._by_stream.get(stream, self.entries[:0])

    @cached_property
    def _by_stream(self) -> dict[int, Rows]:
        entries = self.entries
        return {int(stream): entries[entries["stream"] == stream] for stream in np.unique(entries["stream"])}

    @cached_property
    def _work_of_streams(self) -> dict[int, Rows]:
        return {stream: rows["number"][rows["kind"] < RECORD] for stream, rows in self._by_stream.items()}

    def _last_work(self, stream: int, before: int) -> int:
        """Returns the number of the last work on the stream before the entry number `before`; 0 if there is none."""
        numbers = self._work_of_streams.get(stream)
        at = 0 if numbers is None else int(np.searchsorted(numbers, np.uint64(before)))
        return int(numbers[at - 1]) if numbers is not None and at else 0

    def _whole(self, low: Any) -> int:
        """Returns the full number of an entry, given its low 32 bits."""
        top = int(self.header["next"])
        number = top - top % 2**32 + int(low)
        return number if number < top else max(0, number - 2**32)

    def slot(self, capture: int) -> int:
        """Returns the number that the device last wrote for one branch of a CUDA graph: NEVER,
        BEGUN, FINISHED, or the number of the last work of the branch that the device has done.

        `capture` is the index of the branch in the table `captures`.
        """
        return int(self.tables["slots"][_STREAMS + capture])

    def place(self, line: int) -> Place | None:
        """Returns a row of the table of source lines as a `Place`.

        `line` is the index of the row. Returns None for row 0, which stands for "no line".
        """
        if not 0 < line < len(self.tables["lines"]):
            return None
        row = self.tables["lines"][line]
        code = self.tables["codes"][row["code"]]
        return Place(self.text(code["file"]), int(row["number"]), self.text(code["function"]), int(row["whose"]))

    def stack(self, stack: int) -> tuple[Place | None, Place | None, tuple[Place, ...]]:
        """Returns a row of the table of call stacks. `stack` is the index of the row.

        Returns:
            `(innermost line of the user's code, innermost line of all code, lines from which the
            user's line was called)`.
        """
        if not 0 <= stack < len(self.tables["stacks"]):
            return None, None, ()
        row = self.tables["stacks"][stack]
        outer = (self.place(int(line)) for line in row["outer"])
        return self.place(int(row["line"])), self.place(int(row["inner"])), tuple(each for each in outer if each)

    def kernel(self, kernel: int) -> str:
        """Returns the linker symbol of a kernel. `kernel` is the kernel's index in the table of
        kernels. Returns "" for row 0, which stands for "no kernel".
        """
        return self.text(self.tables["kernels"][kernel]["text"]) if kernel < len(self.tables["kernels"]) else ""

    def text(self, at: int) -> str:
        """Returns the text that begins at byte `at` of the table of texts."""
        text: bytes = self.tables["text"][int(at) : int(at) + 4097].tobytes()
        return text.partition(b"\0")[0].decode(errors="replace")


def name_in_results(linked: str) -> str:
    """Returns the name that results use for a kernel: the first 1024 bytes of the kernel's linker
    symbol, demangled.

    `linked` is the linker symbol.
    """
    return demangled(linked.encode()[:_LONGEST_NAME].decode(errors="replace"))


def pulse(path: Path) -> tuple[bytes, bool, bool]:
    """Reads the parts of a ring file (the file in which a process records its work on streams) that
    show whether the process makes progress.

    Returns:
        `(pulse, worked, failed)`: bytes that change while the process makes progress; whether the
        process has put work on a device; whether a CUDA call has returned an error of the device.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not a ring file.
    """
    with path.open("rb") as file:
        content = file.read(_PULSE_BYTES)
    if not content.startswith(_MAGIC):
        raise ValueError(f"{path} is no ring")
    header = np.frombuffer(content, _HEADER, 1)[0]
    slots, streams = int(header["part"]["at"][0]), int(header["part"]["at"][1])
    of_slots = np.frombuffer(content, "<u4", _STREAMS + int(header["used"][2]), slots)
    of_streams = np.frombuffer(content, _ROWS["streams"], min(int(header["used"][1]), _STREAMS), streams)
    moving = b"".join((header["next"].tobytes(), of_slots.tobytes(), of_streams["settled"].tobytes()))
    return moving, int(header["next"]) > 1, bool(header["error_code"])


def read_ring(path: Path) -> Ring:
    """Reads a ring file: the file in which a process has recorded the last calls by which it put
    work on streams.

    Raises:
        OSError: The file cannot be read.
        TraceError: The file is not a ring file.
    """
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) < _HEADER.itemsize or bytes(content[:8]) != _MAGIC:
        raise TraceError(f"{path}: no file of `unstall run --blame`, or one of another version")
    header = content[: _HEADER.itemsize].view(_HEADER)[0]
    tables = {}
    for number, name in enumerate(_PARTS):
        dtype = np.dtype(_ROWS[name])
        part = header["part"][number]
        at, rows, used = int(part["at"]), int(part["rows"]), int(header["used"][number])
        if int(part["row_bytes"]) != dtype.itemsize or at + rows * dtype.itemsize > len(content):
            raise TraceError(f"{path}: the part {name} has not the form of this version of unstall")
        kept = rows if name in ("slots", "ring") else min(used, rows)
        tables[name] = content[at : at + kept * dtype.itemsize].view(dtype)
    return Ring(header, tables)
