"""A device that tests tell how far it comes: streams are queues of work and marks."""

from __future__ import annotations

import mmap
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unstall.blaming import _blame
from unstall.blaming.child import RING, whose_files
from unstall.blaming.ring import KERNEL, RECORD, WAIT, Ring, read_ring
from unstall.blaming.supervise import make_folder

ASSERT, SYNCHRONIZE = 710, "cuStreamSynchronize"
PROGRAM = "/home/me/program.py"


@dataclass
class Device:
    """Marks by stream, each with the number of pieces of work that stand before it on its stream."""

    path: Path
    marks: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    put: dict[int, int] = field(default_factory=dict)
    refuses: bool = False
    keeps_up: bool = False

    def write(self, stream: int, slot: int, value: int) -> int:
        """Takes a mark, as cuStreamWriteValue32 does."""
        if self.refuses:
            return 801
        self.marks.setdefault(stream, []).append((self.put.get(stream, 0), slot, value))
        if self.keeps_up:
            self.does(stream, self.put.get(stream, 0))
        return 0

    def launched(self, stream: int) -> None:
        """Notes that a piece of work is on the stream."""
        self.put[stream] = self.put.get(stream, 0) + 1

    def does(self, stream: int, count: int) -> None:
        """Does the first `count` pieces of work of a stream, and the marks behind each."""
        ring = read_ring(self.path)
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            slots = np.frombuffer(memory, np.uint32, len(ring.tables["slots"]), int(ring.header["part"][0]["at"]))
            for before, slot, value in self.marks.get(stream, []):
                if before <= count:
                    slots[slot] = value
            del slots

    def ring(self) -> Ring:
        """What is in the file now."""
        return read_ring(self.path)


@contextmanager
def device(pinned: str = "") -> Iterator[Device]:
    """A ring whose marks go to a device of ours."""
    folder = make_folder()
    found = Device(folder / RING)
    try:
        _blame.open(str(found.path), pinned, whose_files(), found.write)
        yield found
    finally:
        _blame.close()
        shutil.rmtree(folder)


def kernel(stream: int, name: str = "kernel") -> str:
    """A line of a program that launches a kernel."""
    return f"work({KERNEL}, {stream}, {name!r}); put({stream})"


def record(stream: int, event: int) -> str:
    """A line that records an event."""
    return f"work({RECORD}, {stream}, None, {event})"


def wait(stream: int, event: int) -> str:
    """A line that lets a stream wait for an event."""
    return f"work({WAIT}, {stream}, None, {event})"


def run(on: Device, lines: Sequence[str]) -> None:
    """Runs a program of these lines, which then notices an error."""
    source = "\n".join([*lines, f"error({ASSERT}, {SYNCHRONIZE!r})"])
    exec(compile(source, PROGRAM, "exec"), {"work": _blame.work, "error": _blame.error, "put": on.launched})
