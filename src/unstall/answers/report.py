"""`Report`: the result of `explain`, with methods to show and save it. This module also reads saved results."""

from __future__ import annotations

from pathlib import Path

from unstall.answers.decoded import decoded
from unstall.diagnose.explain import Diagnosis
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.report.editor import with_links
from unstall.report.explain import document
from unstall.report.pictures import pictures_of
from unstall.report.scrub import files_of, paths_of, scrub, scrubber
from unstall.result import SCHEMA, Result


class Report(Shown, Diagnosis):
    """The result of `explain`. `print` shows it. `save` writes it to a file as .html, .json, .md or
    .txt.

    Several threads may read one report at the same time.
    """

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report as a document. If `scrub_paths` is set, file paths are shortened."""
        result, runs = self.result, () if self.run is None else (self.run,)

        def files() -> set[str]:
            return {file for run in runs for file in files_of(run.timeline)} | paths_of(result)

        if not scrub_paths:
            return with_links(document(result, pictures_of(runs)), files)
        return document(scrub(result, files()), pictures_of(runs, scrubber(result, files())))


def read_result(path: str | Path) -> Result:
    """Reads a result of `explain` that was saved as .json.

    Raises:
        TraceError: The file is not such a result.
    """
    result: Result = decoded(path, {SCHEMA: Result})
    return result
