"""The table of the course's experiments. Each file in `rows/` is an experiment. A new file there adds an experiment."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.course import rows

if TYPE_CHECKING:
    from unstall.course.row import Row

SCRIPTS = Path(__file__).parent / "experiments"


@cache
def table() -> dict[str, Row]:
    """Returns all experiments of the course by name, in the order of their numbers."""
    found = {name: row(name) for name in names()}
    return dict(sorted(found.items(), key=lambda item: item[1].number))


def names() -> list[str]:
    """Returns the names of all experiments of the course, in alphabetical order. Imports none of them."""
    return sorted(module.name for module in pkgutil.iter_modules(rows.__path__))


def row(name: str) -> Row:
    """Returns the experiment with the name `name`."""
    found: Row = import_module(f"unstall.course.rows.{name}").ROW
    return found


@cache
def numbers() -> dict[str, str]:
    """Returns the names of all experiments of the course by their numbers, as text."""
    return {str(row.number): name for name, row in table().items()}


def script(name: str) -> Path:
    """Returns the path of an experiment's script. `name` is the name of the experiment."""
    return SCRIPTS / f"{name}.py"
