"""Removes statements that do nothing but call a function that waits."""

from __future__ import annotations

import ast
from collections.abc import Callable

from unstall.patches.syntax import Edit, Module

_CLOCKS = (
    "time.time",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.time_ns",
    "time.monotonic_ns",
)


def without_call(name: str) -> Callable[[Module, int], tuple[list[Edit], str] | str]:
    """Returns a function that removes the statement `name()` at a line."""

    def take_out(module: Module, line: int) -> tuple[list[Edit], str] | str:
        found = [statement for statement in module.at(line, ast.Expr) if module.calls(statement.value, name)]
        if len(found) != 1:
            return f"the line is not a statement {name}()"
        (statement,) = found
        beside = ast.walk(module.scope(statement))
        if any(isinstance(each, ast.Call) and module.dotted(each.func) in _CLOCKS for each in beside):
            return "a clock is read in the same function, whose times would be wrong without it"
        indent, end = module.indent(statement), module.line_end(statement)
        if indent is None or end is None:
            return "other statements stand on its line"
        start, last = module.span(statement)
        if _is_alone(module, statement):
            return [Edit(start, last, "pass")], ""
        return [Edit(start - len(indent.encode()), end, "")], ""

    return take_out


def _is_alone(module: Module, statement: ast.stmt) -> bool:
    """Returns whether a block holds nothing else."""
    parent = module.parents[statement]
    blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
    return any(block == [statement] for block in blocks)
