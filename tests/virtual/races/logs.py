"""Logs made by hand: what a program asked for, call by call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import RECORD, USE, CopyFlag, LogCode
from unstall.virtual.races import Placement, Race, find_races

Range = tuple[int, int, int]  # allocation, offset, bytes
WHOLE = 1 << 10


def whole(allocation: int) -> Range:
    return allocation, 0, WHOLE


@dataclass
class Log:
    """Each call returns the number of its record, which is its stack's too: no two records are at one line."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    uses: list[tuple[int, int, int, int]] = field(default_factory=list)

    def record(
        self,
        code: LogCode,
        stream: int = 0,
        *,
        a: int = 0,
        b: int = 0,
        device: int = 0,
        flags: int = 0,
        stack: int | None = None,
        name: int = -1,
        thread: int = 0,
        reads: tuple[Range, ...] = (),
        writes: tuple[Range, ...] = (),
    ) -> int:
        number = len(self.rows)
        ranges = [(*r, 0) for r in reads] + [(*w, 1) for w in writes]
        self.uses += ranges
        at = number if stack is None else stack
        self.rows.append((a, b, stream, thread, at, name, len(ranges), code, device, flags))
        return number

    def work(self, stream: int, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), **more: Any) -> int:
        ranges = tuple(map(whole, reads)), tuple(map(whole, writes))
        return self.record(LogCode.LAUNCH, stream, reads=ranges[0], writes=ranges[1], **more)

    def host(self, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), **more: Any) -> int:
        """An operator on the CPU."""
        ranges = tuple(map(whole, reads)), tuple(map(whole, writes))
        number = self.record(LogCode.OP_BEGIN, reads=ranges[0], writes=ranges[1], **more)
        self.record(LogCode.OP_END, **more)
        return number

    def copy(self, stream: int, source: int, target: int, flags: int, *, b: int = -1, device: int = 0) -> int:
        """0 stands for pageable memory, which has no uses."""
        reads = (whole(source),) if source else ()
        writes = (whole(target),) if target else ()
        return self.record(LogCode.COPY, stream, a=WHOLE, b=b, device=device, flags=flags, reads=reads, writes=writes)

    def wait_stream(self, waiting: int, other: int, event: int) -> None:
        self.record(LogCode.EVENT_RECORD, other, a=event)
        self.record(LogCode.EVENT_WAIT, waiting, a=event)

    @property
    def records(self) -> np.ndarray:
        table = np.zeros(len(self.rows), RECORD)
        names = ("a", "b", "stream", "thread", "stack", "id", "uses", "code", "device", "flags")
        for number, name in enumerate(names):
            table[name] = [row[number] for row in self.rows]
        return table

    @property
    def used(self) -> np.ndarray:
        table = np.zeros(len(self.uses), USE)
        for number, name in enumerate(("allocation", "offset", "bytes", "write")):
            table[name] = [use[number] for use in self.uses]
        return table

    def races(self, placement: Placement | None = None) -> list[tuple[RaceKind, int, int]]:
        """(kind, earlier record, later record)."""
        return [(race.kind, race.earlier.record, race.later.record) for race in self.found(placement)]

    def found(self, placement: Placement | None = None) -> tuple[Race, ...]:
        return find_races(self.records, self.used, placement)


def placed(**addresses: int) -> Placement:
    """`a1=0` puts allocation 1 at address 0; all are WHOLE bytes long."""
    numbers = sorted((int(name[1:]), address) for name, address in addresses.items())
    allocation, address = np.array(numbers, np.int64).reshape(-1, 2).T
    return Placement(allocation, address, np.full(len(allocation), WHOLE, np.int64))


DOWNLOAD = CopyFlag.DEVICE_TO_HOST
UPLOAD = CopyFlag.HOST_TO_DEVICE
