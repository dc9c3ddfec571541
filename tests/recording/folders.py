"""A recording's folder made by hand, record by record, as a program's process leaves it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unstall.cupti import layouts
from unstall.cupti.decode import record_types
from unstall.cupti.driver_calls import DRIVER
from unstall.cupti.layouts import Kind
from unstall.recording.journal import Journal

VERSION, LIBRARY = 130000, "libcupti.so.13"
CHUNK = 2 << 20
SPAN = 1 << 30
NO_STREAM = 2**32 - 1
PROCESS = 4000
STARTED_IN = "/home/somebody"
_BY_NAME = {name: number for number, name in DRIVER.items()}
_CALL = struct.Struct("<QQIIIiQII16x")

Frame = tuple[str, int, str]


def activity_record(kind: Kind, fields: dict[str, Any], version: int = VERSION, library: str = LIBRARY) -> bytes:
    """One record as this version of CUPTI would lay it out."""
    of_kind = layouts.sizes(version, library)
    row = np.zeros(1, record_types(of_kind)[kind])
    for name, value in fields.items():
        row[name] = value
    data = bytearray(row.tobytes())
    data[:4] = struct.pack("<I", kind)
    return bytes(data)


def call_record(
    what: int | str,
    start: int,
    end: int,
    *,
    correlation: int = 0,
    thread: int = PROCESS,
    stack: int = -1,
    event: int = 0,
    stream: int = NO_STREAM,
    context: int = 1,
) -> bytes:
    """A call of the driver, by number or name, or a span (SPAN + its number)."""
    number = _BY_NAME[what] if isinstance(what, str) else what
    return _CALL.pack(start, end, number, correlation, thread, stack, event, stream, context)


def name_record(pointer: int, text: bytes) -> bytes:
    """A kernel's name, as it stands in names.bin."""
    return struct.pack("<QI", pointer, len(text)) + text


def chunks(*records: bytes, size: int = CHUNK) -> bytes:
    """Each argument is what a chunk holds; the rest of it is zero."""
    return b"".join(each.ljust(size, b"\0") for each in records)


@dataclass
class Folder:
    """Collects records, and writes them to `path`. Times are ns of the host's clock."""

    path: Path
    lines: str | None = "calls"
    activity: list[bytes] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)
    names: list[bytes] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.journal = Journal(self.path)
        self._stacks = 0
        self._correlations = 0
        self._pointers: dict[bytes, int] = {}

    def armed(self, folder: str = STARTED_IN, **fields: Any) -> None:
        self.journal.write("armed", at=0, pid=PROCESS, folder=folder, **fields)

    def window(self, at: int, **fields: Any) -> None:
        """Recording begins."""
        self.journal.write("window", at=at, **{"recorder": "cupti", "lines": self.lines, "stacks": False, **fields})

    def marks(self, *times: int, kind: str = "optimizer", **fields: Any) -> None:
        """Borders of steps."""
        for step, at in enumerate(times):
            self.journal.write("mark", at=at, kind=kind, step=step, **fields)

    def stack(self, *frames: Frame) -> int:
        """The number of this stack, innermost frame first."""
        self.places.append({"stack": self._stacks, "frames": [list(frame) for frame in frames]})
        self._stacks += 1
        return self._stacks - 1

    def call(self, what: int | str, start: int, end: int, **fields: Any) -> int:
        """A call; its correlation."""
        self._correlations += 1
        self.calls.append(call_record(what, start, end, correlation=self._correlations, **fields))
        return self._correlations

    def span(self, number: int, start: int, end: int, **fields: Any) -> None:
        self.calls.append(call_record(SPAN + number, start, end, **fields))

    def kernel(self, name: bytes | str, start: int, end: int, correlation: int, **fields: Any) -> None:
        text = name.encode() if isinstance(name, str) else name
        if text not in self._pointers:
            self._pointers[text] = 0x7F0000000000 + 16 * len(self._pointers)
            self.names.append(name_record(self._pointers[text], text))
        device = {"start": start, "end": end, "correlation": correlation, "name": self._pointers[text], "stream": 7}
        self.activity.append(activity_record(Kind.KERNEL, {**device, "context": 1, **fields}))

    def record(self, kind: Kind, **fields: Any) -> None:
        """Any other record of activity."""
        self.activity.append(activity_record(kind, fields))

    def write(self) -> Path:
        """Bring it all to the folder."""
        (self.path / "cupti.json").write_text(json.dumps({"version": VERSION, "library": LIBRARY}))
        (self.path / "activity.bin").write_bytes(chunks(b"".join(self.activity)))
        (self.path / "calls.bin").write_bytes(chunks(b"".join(self.calls), size=64 << 10))
        (self.path / "names.bin").write_bytes(b"".join(self.names))
        (self.path / "places.jsonl").write_text("".join(json.dumps(each) + "\n" for each in self.places))
        return self.path
