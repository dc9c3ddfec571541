"""The history of the simulation in growing numpy columns. Timelines are built from it.

Columns are compressed (see `GrowingArray`). A record and its instruction take about 20 bytes. A device operation takes
about 10 bytes. The engine and the race detection also store data, about as many bytes as the history. A million
operators, each with five records and one device operation, take about 400 MB. The memory grows with the length of the
run and has no limit, because a timeline shows the whole run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from unstall.virtual.growing_array import GrowingArray


@dataclass(frozen=True, eq=False, slots=True)
class Happened:
    """The records of the log, as columns. `log.RECORD` has the meaning of each column."""

    code: np.ndarray
    thread: np.ndarray
    stack: np.ndarray
    id: np.ndarray
    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Done:
    """Simulated host instructions. Times are in ns of the virtual clock."""

    record: np.ndarray
    what: np.ndarray  # Call
    thread: np.ndarray
    stream: np.ndarray  # row in StreamRows; for SYNC_DEVICE, the device; -1 for none
    target: np.ndarray  # the instruction that it waits for
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Ran:
    """Simulated device ops. Times are in ns of the virtual clock."""

    instruction: np.ndarray
    stream: np.ndarray
    op: np.ndarray  # row in OpRows
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Allocated:
    """Changes of allocated memory. Sizes are in bytes."""

    record: np.ndarray
    device: np.ndarray
    size: np.ndarray  # negative if freed
    reserved: np.ndarray  # reserved bytes after the change
    address: np.ndarray  # of the block; -1 if only reserved memory changed


Table = TypeVar("Table", Happened, Done, Ran, Allocated)


class Columns(Generic[Table]):
    """A table of columns to which rows can only be appended."""

    def __init__(self, of: Callable[..., Table], types: dict[str, type]) -> None:
        self._of: Callable[..., Table] = of
        self._columns = {name: GrowingArray(type_) for name, type_ in types.items()}

    @property
    def length(self) -> int:
        """The number of rows."""
        return next(iter(self._columns.values())).length

    def append(self, **columns: np.ndarray) -> None:
        """Appends rows. All columns must have the same length."""
        for name, column in self._columns.items():
            column.append(columns[name])

    def whole(self) -> Table:
        """Returns all rows."""
        return self._of(**{name: column.whole() for name, column in self._columns.items()})

    def since(self, name: str, row: int) -> np.ndarray:
        """Returns the values of one column from row `row` on."""
        return self._columns[name].since(row)


class History:
    """All tables of the history."""

    def __init__(self) -> None:
        i1, i4, i8 = np.int8, np.int32, np.int64
        self.happened = Columns(Happened, {"code": i1, "thread": i4, "stack": i4, "id": i4, "a": i8, "b": i8})
        self.done = Columns(
            Done, {"record": i8, "what": i1, "thread": i4, "stream": i4, "target": i8, "start": i8, "end": i8}
        )
        self.allocated = Columns(Allocated, {"record": i8, "device": i4, "size": i8, "reserved": i8, "address": i8})
        self.ran = Columns(Ran, {"instruction": i8, "stream": i4, "op": i4, "start": i8, "end": i8})
