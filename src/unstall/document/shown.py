"""The class `Shown`: the base class of results that can be printed and saved as a document."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from unstall.document.document import Document


class Shown(ABC):
    """The base class of results that can be shown as a document. `str()` returns a text for a
    terminal with 80 columns.
    """

    __slots__ = ()

    @abstractmethod
    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the document that shows this object. If `scrub_paths` is set, home directories
        and folders of this machine are removed from all paths.
        """

    def to_json(self) -> str:
        """Returns the data of this object as JSON. The form of the JSON has a version."""
        from unstall.document.formats import render

        return render(self.document(), "json")

    def save(self, path: str | Path, *, scrub_paths: bool = False) -> None:
        """Writes this object to a file as a document, in the format that the ending of the file's
        name selects.

        Args:
            path: A file name that ends in .html, .json, .md or .txt.
            scrub_paths: Whether to remove home directories and folders of this machine from all
                paths.

        Raises:
            UsageError: `path` has none of these endings, or the file cannot be written.
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
