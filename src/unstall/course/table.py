"""The table of rows. Each file in `rows/` is a row, and is found by itself."""

from __future__ import annotations

import difflib
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.course import rows
from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.course.row import Row

_FEW = 3
SCRIPTS = Path(__file__).parent / "experiments"


@cache
def table() -> dict[str, Row]:
    """Returns all rows by name, in the order of their numbers."""
    found = {name: row(name) for name in names()}
    return dict(sorted(found.items(), key=lambda item: item[1].number))


def names() -> list[str]:
    """Returns the names of all rows, in alphabetical order. Imports no row."""
    return sorted(module.name for module in pkgutil.iter_modules(rows.__path__))


def row(name: str) -> Row:
    """Returns the row with this name."""
    found: Row = import_module(f"unstall.course.rows.{name}").ROW
    return found


def name_of(word: str) -> str:
    """Returns the name of the row that a word means: a name, or a number. Raises UsageError if there is none."""
    if word in names():
        return word
    numbers = {str(row.number): name for name, row in table().items()}
    if word in numbers:
        return numbers[word]
    near = difflib.get_close_matches(word, names(), n=1)
    texts = {name: f"{name} {row.question} {row.learn}".lower() for name, row in table().items()}
    about = near or sorted(
        (name for name, text in texts.items() if not word.isdigit() and word.strip() and word.lower() in text),
        key=lambda name: word.lower() not in name,
    )
    meant = f"; did you mean {' or '.join(about[:_FEW])}?" if about else ""
    raise UsageError(f"{word!r} is no experiment{meant}; unstall course lists them")


def script(name: str) -> Path:
    """Returns the path of a row's script."""
    return SCRIPTS / f"{name}.py"
