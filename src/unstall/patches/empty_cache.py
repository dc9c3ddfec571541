"""Edits that remove calls of `torch.cuda.empty_cache()`."""

from __future__ import annotations

import ast

from unstall.patches.syntax import UNKNOWN, Edit, Module

_CLOCKS = (
    "time.time",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.monotonic",
    "time.time_ns",
    "time.monotonic_ns",
)


def without_empty_cache(module: Module, line: int) -> tuple[list[Edit], str] | str:
    """Returns `(edits, note)`. The edits remove the statement `torch.cuda.empty_cache()` from line
    number `line` of the file `module`. The note is "".

    If the statement cannot be removed, returns a phrase that says why.
    """
    if not any(module.calls(each, "torch.cuda.empty_cache") for each in module.at(line, ast.Call)):
        return UNKNOWN
    found = [each for each in module.at(line, ast.Expr) if module.calls(each.value, "torch.cuda.empty_cache")]
    if len(found) != 1:
        return "the line is not a statement torch.cuda.empty_cache()"
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


def _is_alone(module: Module, statement: ast.stmt) -> bool:
    """Returns whether `statement` is the only statement of its block, so that its removal would
    leave the block empty.
    """
    parent = module.parents[statement]
    blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
    return any(block == [statement] for block in blocks)
