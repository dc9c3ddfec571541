"""`Drawn`: a step of a run as a graph of operators."""

from __future__ import annotations

from dataclasses import dataclass

from unstall.answers.report import Report
from unstall.diagnose.operator_graph import OperatorGraph, median_step, operator_graph
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.errors import UsageError
from unstall.report.draw import document
from unstall.report.scrub import scrubber


@dataclass(frozen=True, repr=False)
class Drawn(Shown):
    """A step of a run as a graph of operators. `print` shows it. `save` writes it to a file. The
    attribute `graph` has its data.
    """

    report: Report
    graph: OperatorGraph

    @classmethod
    def of(cls, report: Report, step: int | None = None) -> Drawn:
        """Returns the graph of one step of a run.

        Args:
            report: The report of the run. It must have the events of the run: a report that was
                read from .json has none.
            step: The number of the step, from 1 on. By default, the step whose length is the
                median.

        Raises:
            UsageError: The report has no events, or the run has no such step.
        """
        run, result = report.run, report.result
        if run is None:
            raise UsageError(f"{result.source.path}: a saved result holds no events: name the trace itself")
        count = len(run.steps)
        if step is None:
            step = median_step(run)
        if not 1 <= step <= count:
            raise UsageError(f"--step {step}: the run has the steps 1 to {count}")
        return cls(report, operator_graph(run, step, result.version))

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the graph as a document. If `scrub_paths` is set, file paths are shortened."""
        return document(map_texts(self.graph, scrubber(self.report.result)) if scrub_paths else self.graph)
