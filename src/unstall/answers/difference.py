"""`Difference`: the changes between two runs, for users."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.diagnose.explain import Diagnosis
from unstall.changes.result import DiffResult
from unstall.changes.runs import diff
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.report.diff import document
from unstall.report.pictures import pictures_of
from unstall.report.scrub import files_of, scrub_diff, scrubber


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """The changes from run A to run B."""

    result: DiffResult
    a: Diagnosis
    b: Diagnosis

    @classmethod
    def between(cls, a: Diagnosis, b: Diagnosis) -> Difference:
        """Compare two runs. Raises UsageError if a result was read back from JSON, because it holds no run."""
        return cls(diff(a, b), a, b)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the document of the comparison."""
        runs = [each.run for each in (self.a, self.b) if each.run is not None]
        if not scrub_paths:
            return document(self.result, pictures_of(runs))
        files = {file for run in runs for file in files_of(run.timeline)}
        of_a, of_b = (scrubber(each.result, files) for each in (self.a, self.b))
        result = scrub_diff(self.result, self.a.result, self.b.result)
        return document(result, pictures_of(runs, lambda text: of_b(of_a(text))))
