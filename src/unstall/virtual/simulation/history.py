"""All that was simulated so far, in numpy columns that grow. Timelines are made from it.

The columns are compressed (`GrowingArray`). A record of the log with its instruction takes about 20
bytes, and a device op about 10. The engine and the race finder together take about as much again. A
million operators, each with five records and one device op, take about 400 MB. There is no limit,
because a timeline shows the whole run.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from unstall.timeline.columns import I8, I32, I64, Table
from unstall.virtual.growing_array import GrowingArray


class Happened(Table, frozen=True, eq=False):
    """The records of the shim's log, as columns. A row is a record. The columns are fields of `log.RECORD`."""

    code: I8
    thread: I32
    stack: I32
    id: I32
    a: I64
    b: I64


class Done(Table, frozen=True, eq=False):
    """The host instructions that were simulated, as columns. A row is an instruction. Times are in
    ns of the virtual clock. `record` is the number of the log's record that an instruction belongs
    to, and `what` is a `RuntimeCall`.
    """

    record: I64
    what: I8  # Call
    thread: I32
    stream: I32  # row in StreamRows; for SYNC_DEVICE, the device; -1 for none
    target: I64  # the instruction that it waits for
    start: I64
    end: I64


class Ran(Table, frozen=True, eq=False):
    """The device ops that were simulated, as columns. A row is an op. Times are in ns of the
    virtual clock. `instruction` is the row of its launch in `Done`, and `stream` is a row of
    `StreamRows`.
    """

    instruction: I64
    stream: I32
    op: I32  # row in OpRows
    start: I64
    end: I64


class Allocated(Table, frozen=True, eq=False):
    """The changes of allocated memory on all devices, as columns. A row is an allocation, a free,
    or a change of the reserved memory alone. Sizes are in bytes.
    """

    record: I64
    device: I32
    size: I64  # negative if freed
    reserved: I64  # reserved bytes after the change
    address: I64  # of the block; -1 if only reserved memory changed


Rows = TypeVar("Rows", bound=Table)


class Columns(Generic[Rows]):
    """A table of columns of equal length to which rows can be appended. Rows are never changed or removed."""

    def __init__(self, of: type[Rows]) -> None:
        self._of = of
        self._columns = {name: GrowingArray(dtype) for name, dtype in of.dtypes().items()}

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

    def whole(self) -> Rows:
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
        self.happened = Columns(Happened)
        self.done = Columns(Done)
        self.allocated = Columns(Allocated)
        self.ran = Columns(Ran)
