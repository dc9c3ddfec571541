"""Work on streams for tests: which is ordered is said by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from unstall.blaming.races.device_memory import DeviceMemory, Use
from unstall.blaming.races.host_memory import HostMemory
from unstall.blaming.races.noted import NotedRaces, Work
from unstall.blaming.races.spans import Span

WHOLE = 1024


@dataclass
class Streams:
    """Numbers work; the line of a piece of work is its number. `waits` has (earlier stream, number, later stream)."""

    waits: list[tuple[int, int, int | None]] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.noted = NotedRaces()
        self.device = DeviceMemory(self.ordered, self.noted)
        self.host = HostMemory(self.ordered, lambda work: self.ordered(work, Work(None, 0, "", ())), self.noted)

    def ordered(self, earlier: Work, later: Work) -> bool:
        if earlier.stream == later.stream:
            return True
        return any(
            stream == earlier.stream and number >= earlier.number and other == later.stream
            for stream, number, other in self.waits
        )

    def wait(self, earlier: int, later: int | None) -> None:
        """What is put on `later` from now on, or done by the host, waits for all that is on `earlier`."""
        self.waits.append((earlier, self.number, later))

    def work(self, stream: int | None, line: int | None = None, *, backward: bool = False) -> Work:
        self.number += 1
        return Work(stream, self.number, "aten::op", (("train.py", line or self.number, "main"),), backward)

    def uses(
        self, stream: int, *, write: bool, block: int = 0, at: int = 0, size: int = WHOLE, line: int | None = None
    ) -> int:
        """Uses bytes of a block; returns the line."""
        work = self.work(stream, line)
        span = Span(block + at, block + at + size, size)
        self.device.used(block, block + WHOLE, Use(span, write, work))
        return work.stack[0][1]

    def found(self) -> list[tuple[str, int, int]]:
        """The kinds and both lines of all races."""
        return [
            (race.kind, race.earlier.where.line, race.later.where.line)
            for race in self.noted.races()
            if race.earlier.where and race.later.where
        ]
