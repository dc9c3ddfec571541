"""The parts of IPython that unstall uses. unstall does not import IPython unless it runs in a notebook."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol


class Shell(Protocol):
    """Stands for IPython's `InteractiveShell`, and has those members of it that unstall uses."""

    compile: Any
    execution_count: int
    input_transformers_cleanup: list[Callable[[list[str]], list[str]]]
    user_global_ns: dict[str, Any]
    user_ns: dict[str, Any]

    def transform_cell(self, raw_cell: str) -> str: ...
    def transform_ast(self, node: ast.Module) -> ast.Module: ...
    def register_magic_function(self, func: Callable[..., object], magic_kind: str) -> None: ...


def usage_error(magic: str, error: Exception) -> Exception:
    """Returns IPython's UsageError with the text "MAGIC: ERROR", such as "%%unstall: no GPU". A
    notebook shows a UsageError as one line, without a stack.

    Args:
        magic: The name of the magic, such as "%%unstall".
        error: The exception whose text the UsageError gets.
    """
    made: Exception = import_module("IPython.core.error").UsageError(f"{magic}: {error}")
    return made


def display(what: object) -> None:
    """Shows `what` below the running cell, in the richest form that the notebook supports, such as HTML."""
    import_module("IPython.display").display(what)
