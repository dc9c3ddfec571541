"""`Audited`: the result of `unstall audit`, which shows and saves itself."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.auditing.result import Audit
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.report.audit import document
from unstall.report.scrub import scrubber_of


@dataclass(frozen=True, repr=False, slots=True)
class Audited(Shown):
    """All rows of an audit."""

    result: Audit

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the table."""
        if not scrub_paths:
            return document(self.result)
        return document(map_texts(self.result, scrubber_of("", _paths(self.result))))


def _paths(audit: Audit) -> set[str]:
    """Returns every path that the audit names."""
    paths: set[str | None] = set()
    for row in audit.rows:
        paths |= {row.entry.partition(":")[0], row.failure.log if row.failure else None}
        for found in row.figures.findings if row.figures else ():
            where = found.where
            paths |= {where.file, where.called_from.file if where.called_from else None}
    return {path for path in paths if path}
