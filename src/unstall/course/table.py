"""The table of the course's experiments. Each file in `rows/` is an experiment. A new file there adds an experiment."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from unstall.course import rows
from unstall.did_you_mean import most_similar, suggestion
from unstall.errors import UsageError

if TYPE_CHECKING:
    from unstall.course.row import Row

_FEW = 3
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


def name_of(word: str) -> str:
    """Returns the name of an experiment. `word` is the name itself, or the experiment's number.

    Raises:
        UsageError: There is no such experiment.
    """
    if word in names():
        return word
    numbers = {str(row.number): name for name, row in table().items()}
    if word in numbers:
        return numbers[word]
    near = most_similar(word, names())
    said = {
        name: (_plain(f"{name} {row.question}"), _plain(f"{row.learn} {row.change}")) for name, row in table().items()
    }
    asked = _plain(word).strip().removesuffix("s")
    about = sorted(
        (
            name
            for name, texts in said.items()
            if asked and not asked.isdigit() and any(asked in text for text in texts)
        ),
        key=lambda name: asked not in said[name][0],
    )
    meant = suggestion(near or " or ".join(about[:_FEW]))
    raise UsageError(f"{word!r} is no experiment{meant}; unstall course lists them")


def _plain(text: str) -> str:
    """Returns a text in small letters, without hyphens and underscores."""
    return text.lower().replace("-", " ").replace("_", " ")


def chosen(word: str) -> tuple[str, Path]:
    """Returns the name of an experiment, and the path of its script.

    `word` is the name of the experiment, its number, or the path of a copy of its script. A copy has the name of the
    original.

    Raises:
        UsageError: There is no such experiment, or no such file, or the file is not text in UTF-8.
    """
    if not word.endswith(".py"):
        name = name_of(word)
        return name, script(name)
    copy = Path(word)
    if not copy.is_file():
        raise UsageError(f"{word} does not exist: unstall course NAME --copy FOLDER makes a copy")
    if copy.stem not in names():
        raise UsageError(f"{word} has the name of no experiment: a copy keeps its name")
    try:
        copy.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{word} cannot be read as text in UTF-8: {error}") from None
    return copy.stem, copy


def script(name: str) -> Path:
    """Returns the path of an experiment's script. `name` is the name of the experiment."""
    return SCRIPTS / f"{name}.py"
