"""The line clock, over programs that hypothesis invents: what a test starts, and what it wrote."""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from recording.programs import invented
from recording.programs.invented import FILE

from unstall.lines import clock as lines
from unstall.lines.clock import LineClock, Mode
from unstall.lines.reference import ENTRY, HEADER, HEADER_BYTES, NOWHERE

MODES = ("settrace", "monitoring") if sys.version_info >= (3, 12) else ("settrace",)
ENGINES = (True, False) if find_spec("unstall.lines._lines") is not None else (False,)

LOOP = """\
def f0(level):
    for each in range(50):
        once(each)

def once(each):
    return each
"""


Where = tuple[int, str, int]
"""Line, function, depth; line -1 and no function where a thread is in none of the user's frames."""


@dataclass(frozen=True)
class Ring:
    """What a clock wrote."""

    written: int
    entries: list[tuple[int, Where]]  # thread's system id, and where it then was
    times: list[int]


def read_ring(folder: Path) -> Ring:
    data = (folder / lines.FILE).read_bytes()
    _, capacity, written = HEADER.unpack_from(data)
    ring = list(ENTRY.iter_unpack(data[HEADER_BYTES : HEADER_BYTES + min(written, capacity) * ENTRY.size]))
    first = written % capacity if written > capacity else 0
    places: dict[int, tuple[int, str]] = {NOWHERE: (-1, "")}
    threads: dict[int, int] = {}
    for text in filter(None, (folder / lines.PLACES).read_text().splitlines()):
        match json.loads(text):
            case {"place": number, "line": line, "function": function, "file": file}:
                assert file == FILE
                places[number] = (line, function)
            case {"thread": number, "id": native_id}:
                threads[number] = native_id
    rows = [(threads[thread], (*places[place], depth)) for _, place, thread, depth in ring[first:] + ring[:first]]
    return Ring(written, rows, [time for time, *_ in ring[first:] + ring[:first]])


@contextmanager
def _without_collector() -> Iterator[None]:
    """When cycles are collected, generators in them are closed: at another time with another engine."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def line_clock(folder: Path, mode: Mode, *, capacity: int = 1 << 16, in_c: bool = True) -> LineClock:
    return LineClock(folder, mode, lambda file: file == FILE, capacity=capacity, in_c=in_c)


def clocked(
    program: invented.Invented,
    mode: Mode,
    in_c: bool,
    begin_at: int = 0,
    capacity: int = 1 << 16,
    seen: Callable[[Path], Any] = lambda folder: None,
) -> Ring:
    """The program, clocked from this probe of its first thread on; `seen` is called at each later probe."""
    with TemporaryDirectory() as name, _without_collector():
        folder = Path(name)
        clock = line_clock(folder, mode, capacity=capacity, in_c=in_c)
        probes, started = 0, False

        def probe() -> None:
            nonlocal probes, started
            probes += 1
            if started:
                seen(folder)
            elif probes > begin_at and threading.current_thread() is threading.main_thread():
                started = True
                clock.start()

        def around(run: Callable[[], Any]) -> None:
            nonlocal started
            if begin_at == 0:
                started = True
                clock.start()
            try:
                run()
            finally:
                if started:
                    clock.stop()

        program.run(probe, around)
        return read_ring(folder) if started else Ring(0, [], [])
