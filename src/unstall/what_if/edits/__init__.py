"""Edits of a program, one in each file of this folder. The name of an edit is that of its file,
with hyphens in place of underscores.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from unstall.did_you_mean import most_similar
from unstall.errors import UsageError
from unstall.what_if.place import EditPlace, parse_line
from unstall.what_if.subject import Subject

_FACTOR = re.compile(r"\bK\b")


class Module(Protocol):
    """What each file of the folder `what_if/edits` offers. The first paragraph of the file's
    docstring says what the edit does.

    The argument of an edit is a line, or None for all lines. A file whose edit has another argument
    also offers `prepare(text)`, which returns the argument. `text` is what stands after the edit's
    name and the colon, or None. It raises UsageError if the text is not valid for this edit.
    """

    __doc__: str | None

    def apply(self, subject: Subject, argument: object) -> Subject:
        """Returns the run with the edit made."""


class Edit(msgspec.Struct, frozen=True):
    """One edit, such as `remove-syncs:train.py:41:aten::item`.

    Attributes:
        text: The edit as text.
        module: The file of the edit.
        argument: The argument that stands after the name.
    """

    text: str
    module: Module
    argument: object

    def apply(self, subject: Subject) -> Subject:
        """Returns the run with the edit made wherever that is possible. The notes of the returned
        `Subject` say where it is not, and why.
        """
        return self.module.apply(subject, self.argument)

    def __str__(self) -> str:
        return self.text


def names() -> list[str]:
    """Returns the names of all edits."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def parse(text: str) -> Edit:
    """Returns the edit that `text` names, such as `remove-syncs:train.py:41`.

    Raises:
        UsageError: There is no such edit, or the text after its name is not valid.
    """
    name, colon, rest = text.partition(":")
    if name not in names():
        raise no_such_edit(name)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    argument = rest if colon else None
    if hasattr(module, "prepare"):
        return Edit(text, module, module.prepare(argument))
    return Edit(text, module, parse_line(argument) if argument is not None else None)


def no_such_edit(name: str, of_job: Sequence[str] = ()) -> UsageError:
    """Returns the error that there is no edit `name`, which says what there is. `of_job` are the names of edits that
    exist for a whole job, beside those for one program.
    """
    near = most_similar(name.lower(), [*names(), *of_job])
    meant = f"did you mean {near}? There are" if near else "there are"
    also = f"; for a whole job also: {', '.join(of_job)}" if of_job else ""
    return UsageError(f"there is no edit {name!r}; {meant}: {', '.join(names())}{also}")


def about(edit: Edit) -> str:
    """Returns the sentence in which the edit's own file says what the edit does. If the edit has a
    factor, which these sentences call K, a second sentence says what K is.
    """
    text = (edit.module.__doc__ or "").split("\n\n")[0].replace("\n", " ").strip()
    if not _FACTOR.search(text):
        return text
    factor = float(edit.text.split(":")[1])
    return f"{text} K is {'infinite: it takes no time' if factor == math.inf else f'{factor:g}'}."


__all__ = ["Edit", "EditPlace", "about", "names", "no_such_edit", "parse"]
