"""`Audited`: the result of `unstall audit`, with methods to show and save it."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.auditing.result import Audit
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.report.audit import document
from unstall.report.repository import in_repository
from unstall.report.scrub import files_at, scrubber_of


@dataclass(frozen=True, repr=False, slots=True)
class Audited(Shown):
    """The result of `unstall audit`. `print` shows its table. `save` writes it to a file as .html,
    .json, .md or .txt.
    """

    result: Audit

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the table of the audit as a document. If `scrub_paths` is set, file paths are shortened."""
        files = _files(self.result)
        names = in_repository(files)
        if not scrub_paths:
            return document(self.result, names)
        shorten = scrubber_of("", files | _sources_and_logs(self.result))
        return document(map_texts(self.result, shorten), {shorten(file): name for file, name in names.items()})


def _files(audit: Audit) -> set[str]:
    """Returns all source files at which the audit has findings."""
    return files_at(found.where for row in audit.rows if row.figures for found in row.figures.findings)


def _sources_and_logs(audit: Audit) -> set[str]:
    paths = {row.entry.partition(":")[0] for row in audit.rows}
    return paths | {row.failure.log for row in audit.rows if row.failure and row.failure.log}
