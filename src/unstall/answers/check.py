"""`Checked`: which limits a run exceeds, with methods to show and save it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unstall.budgets.outcome import CheckResult
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.report.check import document, files_of_check
from unstall.report.repository import in_repository
from unstall.report.scrub import scrubber_of


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """The result of `unstall check`: which limits a run exceeds. `print` shows it. `save` writes it to a file."""

    result: CheckResult

    def document(self, *, scrub_paths: bool = False) -> Document:
        path = self.result.path
        files = files_of_check(self.result) | ({path} if Path(path).is_file() else set())
        names = in_repository(files)
        if not scrub_paths:
            return document(self.result, names)
        shorten = scrubber_of(path, files)
        return document(map_texts(self.result, shorten), {shorten(file): name for file, name in names.items()})
