"""What unstall asks of IPython, which is the notebook's and no dependency: imported when it is there for sure."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Shell(Protocol):
    """Its `InteractiveShell`."""

    compile: Any
    execution_count: int
    user_global_ns: dict[str, Any]
    user_ns: dict[str, Any]

    def transform_cell(self, raw_cell: str) -> str: ...
    def transform_ast(self, node: ast.Module) -> ast.Module: ...
    def register_magic_function(self, func: Callable[..., object], magic_kind: str) -> None: ...


def usage_error(magic: str, error: Exception) -> Exception:
    """Its UsageError, which a notebook shows as one line."""
    made: Exception = import_module("IPython.core.error").UsageError(f"{magic}: {error}")
    return made


def display(what: object) -> None:
    """Show it below the cell, as rich as the notebook can."""
    import_module("IPython.display").display(what)
