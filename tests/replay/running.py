"""An engine, and a program with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from unstall.replay.program import Program, Replayed

Engine: TypeAlias = Callable[[Program], Replayed]


def with_columns(program: Program, **columns: Any) -> Program:
    """`instructions_work=…` or `ops_gap=…` replaces a column; what is neither is a field of the program."""
    parts = {
        table: {name.removeprefix(f"{table}_"): column for name, column in columns.items() if name.startswith(table)}
        for table in ("instructions", "ops")
    }
    rest = {name: value for name, value in columns.items() if not name.startswith(("instructions_", "ops_"))}
    return replace(
        program,
        instructions=replace(program.instructions, **parts["instructions"]),
        ops=replace(program.ops, **parts["ops"]),
        **rest,
    )


def with_value(program: Program, table: str, name: str, row: int, value: int) -> Program:
    """One figure of one column is another."""
    column = getattr(getattr(program, table), name).copy()
    column[row] = value
    return with_columns(program, **{f"{table}_{name}": column})
