"""The parts of IPython that unstall uses. Only code that runs in a notebook imports IPython."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Shell(Protocol):
    """The members of IPython's `InteractiveShell` that unstall uses."""

    compile: Any
    execution_count: int
    input_transformers_cleanup: list[Callable[[list[str]], list[str]]]
    user_global_ns: dict[str, Any]
    user_ns: dict[str, Any]

    def transform_cell(self, raw_cell: str) -> str: ...
    def transform_ast(self, node: ast.Module) -> ast.Module: ...
    def register_magic_function(self, func: Callable[..., object], magic_kind: str) -> None: ...


def usage_error(magic: str, error: Exception) -> Exception:
    """Returns IPython's UsageError with the text "magic: error". A notebook shows such an error as one line."""
    made: Exception = import_module("IPython.core.error").UsageError(f"{magic}: {error}")
    return made


def display(what: object) -> None:
    """Shows an object below the cell, in the richest form that the notebook supports."""
    import_module("IPython.display").display(what)
