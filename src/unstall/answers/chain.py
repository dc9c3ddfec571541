"""`ShownChains`: the calls from a source line to the device, link by link."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.answers.finding import finding_of
from unstall.answers.report import Report
from unstall.diagnose.chain import Chains, chains_at
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.errors import UsageError
from unstall.report.chain import document
from unstall.report.scrub import scrubber


@dataclass(frozen=True, repr=False)
class ShownChains(Shown):
    """The chains of calls from one source line to the device. `print` shows them. `save` writes them to a file."""

    report: Report
    chains: Chains

    @classmethod
    def of(cls, report: Report, at: str) -> ShownChains:
        """Returns the chains of calls of one source line.

        Args:
            report: The report of a run. It must have the events of the run: a report that was read
                from .json has none.
            at: The line, such as "train.py:41", or the number of a finding, such as "2". A number
                selects the line of the finding. If some chains of this line contain the finding's
                operator, only those are returned.

        Raises:
            UsageError: The report has no events, the report has no such finding, or the line
                launches nothing and never waits.
        """
        result, run = report.result, report.run
        if run is None:
            raise UsageError(f"{result.source.path}: a saved result holds no events: name the trace itself")
        file, _, number = at.rpartition(":")
        operator = None
        if not (file and number.isdecimal()):
            where = finding_of(result, at.lower()).where
            if where.file is None or where.line is None:
                raise UsageError(f"finding {at} has no source line: the run was recorded without stacks")
            file, number, operator = where.file, str(where.line), where.op
        found = chains_at(run, file, int(number))
        found = tuple(each for each in found if operator in {link.name for link in each.links}) or found
        if not found:
            raise UsageError(f"{file}:{number}: this line launches nothing in this run, and does not wait for a device")
        return cls(report, Chains(version=result.version, path=result.source.path, at=f"{file}:{number}", chains=found))

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the chains as a document. If `scrub_paths` is set, file paths are shortened."""
        return document(map_texts(self.chains, scrubber(self.report.result)) if scrub_paths else self.chains)
