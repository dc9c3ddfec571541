"""`Shown`: the base of objects that show, save and print themselves through their document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from unstall.document.document import Document


class Shown(ABC):
    """Data that has a document. `str()` returns text for a terminal of 80 columns."""

    __slots__ = ()

    @abstractmethod
    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the document. With `scrub_paths`, no path in it names a home directory or a machine."""

    def to_json(self) -> str:
        """Returns the versioned JSON form."""
        from unstall.document.formats import render

        return render(self.document(), "json")

    def save(self, path: str | Path, *, scrub_paths: bool = False) -> None:
        """Write the document in the format that the file's ending names.

        Args:
            path: a file whose name ends in .html, .json, .md or .txt.
            scrub_paths: shorten all paths, so that none names a home directory or a machine.

        Raises:
            UsageError: the file has another ending or cannot be written.
        """
        from unstall.document.formats import format_of, write

        form = format_of(path)
        write(self.document(scrub_paths=scrub_paths), path, form)

    def __str__(self) -> str:
        from unstall.document import terminal

        return terminal.render(self.document()).removesuffix("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from unstall.document import terminal

        return terminal.notebook(self.document())
