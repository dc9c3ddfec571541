"""`ShownFinding`: one finding of a result, with the user's source and a patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.errors import UsageError
from unstall.patches.patch import Patch, patch_for
from unstall.patches.source import AROUND_A_CALL, Excerpt, Source, excerpt, read_source
from unstall.report.scrub import scrub
from unstall.report.show import document, numbered
from unstall.result import Caller, Finding, Result, Where

_STALE = "changed after the run, so lines may have moved: record it again"


@dataclass(frozen=True, repr=False)
class ShownFinding(Shown):
    """One finding. `number` is its number in the report, and `apply` the command that applies the patch."""

    result: Result
    number: str
    excerpts: tuple[tuple[str, Where | Caller, Excerpt], ...]
    patch: Patch | str
    apply: str
    caveat: str = ""

    @classmethod
    def of(
        cls, result: Result, number: str, folders: Sequence[Path], *, apply: str, ran_ns: int | None = None
    ) -> ShownFinding:
        """Reads the source of a finding.

        Args:
            result: The result.
            number: The number of the finding: "1", or "b1" for a bug.
            folders: Folders below which source may be read, besides the current one.
            apply: The command that applies the patch.
            ran_ns: When the run ended, in ns of the system's clock; None if that is not known.

        Raises:
            UsageError: the result has no finding of this number.
        """
        finding = _finding(result, number)
        where, caller = finding.where, finding.where.called_from
        source = _read(where.file, folders)
        excerpts: list[tuple[str, Where | Caller, Excerpt]] = []
        if where.line is not None:
            excerpts.append(("at", where, excerpt(source, where.line)))
        if caller is not None:
            excerpts.append(("from", caller, excerpt(_read(caller.file, folders), caller.line, AROUND_A_CALL)))
        stale = isinstance(source, Source) and ran_ns is not None and source.changed_ns > ran_ns
        patch = patch_for(finding, source)
        caveat = f"{where.file}: {_STALE}" if stale else ""
        return cls(result, number, tuple(excerpts), patch, apply, caveat)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the document of the finding."""
        result = scrub(self.result, ()) if scrub_paths else self.result
        return document(result, self.number, self.excerpts, self.patch, self.apply, self.caveat)


def _read(file: str | None, folders: Sequence[Path]) -> Source | str:
    """Reads a file below the current folder or, by the end of its name, below one of the others."""
    if not file:
        return "the run has no source lines"
    here = read_source(file, [Path()])
    return here if isinstance(here, Source) or not folders else read_source(file, folders, by_ending=True)


def _finding(result: Result, number: str) -> Finding:
    found = numbered(result)
    if number in found:
        return found[number]
    if not found:
        raise UsageError(f"{number}: the run has no finding that costs anything")
    raise UsageError(f"{number!r} is no finding of this run: it has {', '.join(found)}")
