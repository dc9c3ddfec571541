"""All that was simulated so far, in numpy columns that grow. Timelines are made from it.

The columns are compressed (`GrowingArray`). A record of the log with its instruction takes about 20
bytes, and a device op about 10. The engine and the race finder together take about as much again. A
million operators, each with five records and one device op, take about 400 MB. There is no limit,
because a timeline shows the whole run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from unstall.virtual.growing_array import GrowingArray


@dataclass(frozen=True, eq=False, slots=True)
class Happened:
    """The records of the shim's log, as columns. A row is a record. The columns are fields of
    `log.RECORD`.
    """

    code: np.ndarray
    thread: np.ndarray
    stack: np.ndarray
    id: np.ndarray
    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Done:
    """The host instructions that were simulated, as columns. A row is an instruction. Times are in
    ns of the virtual clock. `record` is the number of the log's record that an instruction belongs
    to, and `what` is a `RuntimeCall`.
    """

    record: np.ndarray
    what: np.ndarray  # Call
    thread: np.ndarray
    stream: np.ndarray  # row in StreamRows; for SYNC_DEVICE, the device; -1 for none
    target: np.ndarray  # the instruction that it waits for
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Ran:
    """The device ops that were simulated, as columns. A row is an op. Times are in ns of the
    virtual clock. `instruction` is the row of its launch in `Done`, and `stream` is a row of
    `StreamRows`.
    """

    instruction: np.ndarray
    stream: np.ndarray
    op: np.ndarray  # row in OpRows
    start: np.ndarray
    end: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Allocated:
    """The changes of allocated memory on all devices, as columns. A row is an allocation, a free,
    or a change of the reserved memory alone. Sizes are in bytes.
    """

    record: np.ndarray
    device: np.ndarray
    size: np.ndarray  # negative if freed
    reserved: np.ndarray  # reserved bytes after the change
    address: np.ndarray  # of the block; -1 if only reserved memory changed


Table = TypeVar("Table", Happened, Done, Ran, Allocated)


class Columns(Generic[Table]):
    """A table of columns of equal length to which rows can be appended. Rows are never changed or
    removed.
    """

    def __init__(self, of: Callable[..., Table], types: dict[str, type]) -> None:
        self._of: Callable[..., Table] = of
        self._columns = {name: GrowingArray(type_) for name, type_ in types.items()}

    @property
    def length(self) -> int:
        """The number of rows."""
        return next(iter(self._columns.values())).length

    def append(self, **columns: np.ndarray) -> None:
        """Appends rows. `columns` has the new values of each column, by the column's name. All must
        have the same length.
        """
        for name, column in self._columns.items():
            column.append(columns[name])

    def whole(self) -> Table:
        """Returns all rows, with each column as one array."""
        return self._of(**{name: column.whole() for name, column in self._columns.items()})

    def since(self, name: str, row: int) -> np.ndarray:
        """Returns the values of the column `name` from row `row` on."""
        return self._columns[name].since(row)


class History:
    """All that was simulated so far.

    Attributes:
        happened: The records of the shim's log.
        done: The host instructions.
        allocated: The changes of allocated memory.
        ran: The device ops.
    """

    def __init__(self) -> None:
        i1, i4, i8 = np.int8, np.int32, np.int64
        self.happened = Columns(Happened, {"code": i1, "thread": i4, "stack": i4, "id": i4, "a": i8, "b": i8})
        self.done = Columns(
            Done, {"record": i8, "what": i1, "thread": i4, "stream": i4, "target": i8, "start": i8, "end": i8}
        )
        self.allocated = Columns(Allocated, {"record": i8, "device": i4, "size": i8, "reserved": i8, "address": i8})
        self.ran = Columns(Ran, {"instruction": i8, "stream": i4, "op": i4, "start": i8, "end": i8})
