"""Everything that happened, in numpy columns that grow: the source of a timeline.

A record with one instruction takes about 110 bytes, an op 50: a program of a million operators, each with four records
and one op, takes half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from unstall.virtual.growing_array import GrowingArray


@dataclass(frozen=True, eq=False, slots=True)
class Happened:
    """Records."""

    code: np.ndarray
    thread: np.ndarray
    stack: np.ndarray
    id: np.ndarray
    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Done:
    """Instructions, in ns of the virtual clock."""

    record: np.ndarray
    what: np.ndarray  # Call
    thread: np.ndarray
    stream: np.ndarray  # row of the simulation's streams, of SYNC_DEVICE the device; -1 for none
    target: np.ndarray  # instruction waited for
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Ran:
    """Device ops."""

    instruction: np.ndarray
    stream: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    direction: np.ndarray
    memory: np.ndarray
    bytes: np.ndarray
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Allocated:
    """Changes of allocated memory, in bytes."""

    record: np.ndarray
    device: np.ndarray
    size: np.ndarray  # negative when given back
    reserved: np.ndarray  # after it


Table = TypeVar("Table", Happened, Done, Ran, Allocated)


class Columns(Generic[Table]):
    """A table that only grows."""

    def __init__(self, of: Callable[..., Table], types: dict[str, type]) -> None:
        self._of: Callable[..., Table] = of
        self._columns = {name: GrowingArray(type_) for name, type_ in types.items()}

    @property
    def length(self) -> int:
        """Rows."""
        return next(iter(self._columns.values())).length

    def append(self, **columns: np.ndarray) -> None:
        """Append rows, as many to each column."""
        for name, column in self._columns.items():
            column.append(columns[name])

    def whole(self) -> Table:
        """All rows."""
        return self._of(**{name: column.whole() for name, column in self._columns.items()})


class History:
    """All tables."""

    def __init__(self) -> None:
        i1, i4, i8 = np.int8, np.int32, np.int64
        self.happened = Columns(Happened, {"code": i1, "thread": i4, "stack": i4, "id": i4, "a": i8, "b": i8})
        self.done = Columns(
            Done, {"record": i8, "what": i1, "thread": i4, "stream": i4, "target": i8, "start": i8, "end": i8}
        )
        self.allocated = Columns(Allocated, {"record": i8, "device": i4, "size": i8, "reserved": i8})
        self.ran = Columns(
            Ran,
            {
                "instruction": i8,
                "stream": i4,
                "name": i4,
                "kind": i1,
                "direction": i1,
                "memory": i1,
                "bytes": i8,
                "start": i8,
                "end": i8,
            },
        )
