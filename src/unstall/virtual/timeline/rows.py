"""Selects rows of a timeline's tables."""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from unstall.timeline.columns import I64, Bool, Collectives, Device, Faults, Host, Memory, Waits

_Table = TypeVar("_Table", Host, Device, Waits, Memory, Faults, Collectives)


def rows_of(table: _Table, rows: Bool | I64) -> _Table:
    """Returns the selected rows of a table. `rows` is a bool mask, or has row numbers in the order of the result."""
    columns = {field.name: getattr(table, field.name)[rows] for field in fields(table)}
    return type(table)(**columns)
