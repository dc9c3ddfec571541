"""Edits of a program. Each edit has a file in this folder. The name of an edit is its file's name, with hyphens in
place of underscores.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import dataclass
from typing import Protocol

from unstall.errors import UsageError
from unstall.what_if.place import EditPlace
from unstall.what_if.subject import Subject


class Module(Protocol):
    """The interface of a file in this folder. The first line of the file's docstring says what the edit does."""

    __doc__: str | None

    def prepare(self, text: str | None) -> object:
        """Parses the text after the edit's name. `text` is None if there is no text after the name.

        Raises:
            UsageError: The text is not valid for this edit.
        """

    def apply(self, subject: Subject, argument: object) -> Subject:
        """Returns the subject with the edit applied. `argument` is the result of `prepare`."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit, such as `remove-syncs:train.py:41:aten::item`."""

    text: str
    module: Module
    argument: object

    def apply(self, subject: Subject) -> Subject:
        """Returns the subject with the edit applied wherever the edit is possible. The notes of the returned subject
        say where the edit is not possible, and why."""
        return self.module.apply(subject, self.argument)

    def __str__(self) -> str:
        return self.text


def names() -> list[str]:
    """Returns the names of all edits."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def parse(text: str) -> Edit:
    """Parses an edit in the form in which users write it, such as `remove-syncs:train.py:41`.

    Raises:
        UsageError: There is no such edit, or the text after its name is not valid.
    """
    name, colon, rest = text.partition(":")
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        meant = f"did you mean {near[0]}? There are" if near else "there are"
        raise UsageError(f"there is no edit {name!r}; {meant}: {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return Edit(text, module, module.prepare(rest if colon else None))


def about(edit: Edit) -> str:
    """Returns the sentence in which the edit's file says what the edit does."""
    return (edit.module.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()


__all__ = ["Edit", "EditPlace", "about", "names", "parse"]
