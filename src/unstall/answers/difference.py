"""`Difference`: what changed between two runs, as a user holds it."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.diagnose.explain import Diagnosis
from unstall.diff.result import DiffResult
from unstall.diff.runs import diff
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.report.diff import document
from unstall.report.drawing import pictures_of
from unstall.report.scrub import files_of, scrub_diff, scrubber


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What changed from run A to run B."""

    result: DiffResult
    a: Diagnosis
    b: Diagnosis

    @classmethod
    def between(cls, a: Diagnosis, b: Diagnosis) -> Difference:
        """Compare two runs. Raises UsageError for a result that was read back from JSON: it holds no run."""
        return cls(diff(a, b), a, b)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """What the comparison says."""
        runs = [each.run for each in (self.a, self.b) if each.run is not None]
        if not scrub_paths:
            return document(self.result, pictures_of(runs))
        files = {file for run in runs for file in files_of(run.timeline)}
        of_a, of_b = (scrubber(each.result, files) for each in (self.a, self.b))
        result = scrub_diff(self.result, self.a.result, self.b.result)
        return document(result, pictures_of(runs, lambda text: of_b(of_a(text))))
