"""Keeps the part of the log that matters for races, in compressed form: about ten bytes for a
record and about ten for its uses of memory.

The log has a record for each thing that the program asks of its GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unstall.virtual.growing_array import GrowingArray
from unstall.virtual.log import RECORD, USE, LogCode, chosen
from unstall.virtual.races.dependencies import Needs, needs_of
from unstall.virtual.races.find import find_races
from unstall.virtual.races.found import Access, Placement, Race

_FIELDS = [
    *(("a", "<i8"), ("b", "<i8"), ("stream", "<i8"), ("thread", "<i4"), ("stack", "<i4"), ("id", "<i4")),
    *(("content", "<i4"), ("uses", "<i4"), ("code", "u1"), ("device", "i1"), ("flags", "u1")),
]
_RECORD = np.dtype(_FIELDS)
_USE = np.dtype([("allocation", "<i8"), ("offset", "<i8"), ("bytes", "<i8"), ("write", "u1")])
_PLACED = np.dtype([("allocation", "<i8"), ("address", "<i8"), ("size", "<i8")])
_OPERATORS = chosen(LogCode.OP_BEGIN, LogCode.OP_END)
_NEVER = chosen(
    *(LogCode.MARK_BEGIN, LogCode.MARK_END, LogCode.PIN, LogCode.ADVANCE),
    *(LogCode.ASSERT, LogCode.NOTICE, LogCode.COLLECTIVE_CALL, LogCode.CLOCK, LogCode.CALL),
    *(LogCode.GIVE, LogCode.TAKE),
)
_ENOUGH_PARTS = 256
"""How many parts of the log are compressed together. A part can be small: a program that reads its clock ends one."""


class RaceLog:
    """Collects the part of the log (the shim's records of what the program asks of its GPU) that
    matters for races, and finds the races in it.
    """

    def __init__(self) -> None:
        self._records = GrowingArray(_RECORD)
        self._uses = GrowingArray(_USE)
        self._numbers = GrowingArray(np.int64)  # positions of the kept records in the whole log; -1 if not in it
        self._placed = GrowingArray(_PLACED)
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # (records, uses, positions in the log)
        self._kept_operators = False  # whether operators of the last part were kept
        self._open: dict[int, int] = {}  # by thread: the number of open operators
        self.length = 0

    def add(self, records: np.ndarray, uses: np.ndarray) -> None:
        """Adds the next part of the log.

        Args:
            records: Its records, with dtype `log.RECORD`.
            uses: The uses of memory of these records, in the same order, with dtype `log.USE`.
        """
        self._add(records, uses, np.arange(self.length, self.length + len(records)))
        self.length += len(records)

    def _add(self, records: np.ndarray, uses: np.ndarray, numbers: np.ndarray) -> None:
        self._parts.append((records, uses, numbers))
        if len(self._parts) == _ENOUGH_PARTS:
            self._compress()

    def _compress(self) -> None:
        if not self._parts:
            return
        records, uses, numbers = (np.concatenate(tables) for tables in zip(*self._parts, strict=True))
        self._parts = []
        code = records["code"]
        operators = _OPERATORS[code]
        # Operators matter only if they use memory. Operators of the previous part may still be open.
        keep = bool((records["uses"][operators] > 0).any()) or (self._kept_operators and any(self._open.values()))
        self._kept_operators = keep
        self._count_open(records[operators])
        drop = (_NEVER if keep else _NEVER | _OPERATORS)[code] & (records["uses"] == 0)
        rows = np.flatnonzero(~drop)
        self._records.append(_fields(records[rows], _RECORD))
        self._uses.append(_fields(uses, _USE))
        self._numbers.append(numbers[rows])

    def placed(self, allocations: Sequence[tuple[int, int, int]]) -> None:
        """Adds the addresses that allocations got, each as `(number of the allocation, address, bytes)`."""
        if allocations:
            self._placed.append(np.array(allocations, _PLACED))

    def event_is_done(self, event: int) -> None:
        """Notes that the host asked whether an event is done, and that it was. What the host does
        from here on comes after the work before the event.
        """
        self._told(LogCode.SYNC_EVENT, a=event)

    def stream_is_done(self, device: int, stream: int) -> None:
        """Notes that the host asked whether a stream has done all its work, and that it had."""
        self._told(LogCode.SYNC_STREAM, device=device, stream=stream)

    @property
    def kept(self) -> int:
        """How many records are kept so far. `races` takes a range from one such number to another."""
        self._compress()
        return self._records.length

    def whole(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns `(records, uses, numbers)`: the kept records, their uses of memory, and the
        number of each record in the whole log.

        The number is -1 for a record that is not in the log: one that was made from an answer to
        the host.
        """
        self._compress()
        return self._records.whole(), self._uses.whole(), self._numbers.whole()

    def races(self, within: range | None = None) -> tuple[Race, ...]:
        """Returns the races so far.

        Args:
            within: A range between two values of `kept`. Only races whose later access lies in it
                are returned. None for all races.
        """
        records, uses, numbers = self.whole()
        placed = self._placed.whole()
        placed = placed[np.argsort(placed["allocation"], kind="stable")]
        columns = (np.ascontiguousarray(placed[name]) for name in ("allocation", "address", "size"))
        placement = Placement(*columns) if len(placed) else None

        def numbered(access: Access) -> Access:
            launch = access.launch if access.launch < 0 else int(numbers[access.launch])
            return replace(access, record=int(numbers[access.record]), launch=launch)

        return tuple(
            replace(race, earlier=numbered(race.earlier), later=numbered(race.later))
            for race in find_races(records, uses, placement, within)
        )

    def dependencies(self) -> Needs:
        """Returns which work on devices needs the data of which, so far, as pairs of record numbers
        in the whole log.
        """
        self._compress()
        records, uses, numbers = (table.whole() for table in (self._records, self._uses, self._numbers))
        found = needs_of(records, uses)
        return Needs(numbers[found.earlier], numbers[found.later], found.bytes)

    def _told(self, code: LogCode, **fields: int) -> None:
        row = np.zeros(1, RECORD)
        row["code"], row["stack"], row["id"] = code, -1, -1
        for name, value in fields.items():
            row[name] = value
        self._add(row, np.zeros(0, USE), np.full(1, -1, np.int64))

    def _count_open(self, operators: np.ndarray) -> None:
        for thread in np.unique(operators["thread"]).tolist():
            begins = operators["code"][operators["thread"] == thread] == LogCode.OP_BEGIN
            self._open[thread] = self._open.get(thread, 0) + 2 * int(begins.sum()) - len(begins)


def _fields(table: np.ndarray, dtype: np.dtype) -> np.ndarray:
    kept = np.empty(len(table), dtype)
    for name in dtype.names or ():
        kept[name] = table[name]
    return kept
