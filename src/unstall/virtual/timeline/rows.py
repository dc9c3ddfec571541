"""Selects rows of the tables of a timeline."""

from __future__ import annotations

from typing import TypeVar

from unstall.timeline.columns import I64, Bool, ClockReads, Collectives, Device, Faults, Host, Memory, Waits

_Table = TypeVar("_Table", Host, Device, Waits, Memory, Faults, Collectives, ClockReads)


def rows_of(table: _Table, rows: Bool | I64) -> _Table:
    """Returns a table with some rows of `table`. `rows` is a mask of the rows, or has the numbers
    of the rows in the new order.
    """
    columns = {name: getattr(table, name)[rows] for name in table.__struct_fields__}
    return type(table)(**columns)
