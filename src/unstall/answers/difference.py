"""`diff`: compares two runs. The result is a `Difference`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unstall.answers.explain import explain
from unstall.answers.report import read_result
from unstall.changes.promise import remainder, sentence
from unstall.changes.result import DiffResult
from unstall.changes.runs import diff as compare
from unstall.diagnose.explain import Diagnosis
from unstall.document.document import Document
from unstall.document.shown import Shown
from unstall.errors import TraceError
from unstall.read.live import Profile
from unstall.report.diff import document
from unstall.report.editor import with_links
from unstall.report.pictures import pictures_of
from unstall.report.promise import promised
from unstall.report.scrub import files_compared, files_of, scrub_diff, scrubber
from unstall.timeline.columns import Timeline


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """The changes from an earlier run A to a later run B. `print` shows them. `save` writes them to
    a file as .html, .json, .md or .txt.
    """

    result: DiffResult
    a: Diagnosis
    b: Diagnosis

    @classmethod
    def between(cls, a: Diagnosis, b: Diagnosis) -> Difference:
        """Compares run A with run B.

        If the report of a run was read from a saved .json file, only step times and the plan are
        compared.
        """
        return cls(compare(a, b), a, b)

    @property
    def json(self) -> str:
        """The comparison as JSON, with the schema `unstall.diff/1`."""
        return self.to_json()

    @property
    def before_step_ns(self) -> int | None:
        """The step time of run A without the recorder's overhead, in ns; None if the runs cannot be compared."""
        return None if self.result.promise is None else self.result.promise.before_ns

    @property
    def promised_step_ns(self) -> int | None:
        """The step time, in ns, that the report of run A predicted after all changes of its plan.
        None if it has no plan, or if the runs cannot be compared.
        """
        return None if self.result.promise is None else self.result.promise.promised_ns

    @property
    def got_step_ns(self) -> int | None:
        """The step time of run B without the recorder's overhead, in ns; None if the runs cannot be compared."""
        return None if self.result.promise is None else self.result.promise.got_ns

    def conclusion(self) -> str:
        """Returns a line such as "promised 0.653 ms, got 0.697 ms". If some changes of run A's plan
        were not made in run B, a line about these changes comes first.
        """
        return "\n".join(line for line in (remainder(self.result), sentence(self.result)) if line)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the comparison as a document. If `scrub_paths` is set, file paths are shortened."""
        runs = [each.run for each in (self.a, self.b) if each.run is not None]

        def files() -> set[str]:
            return {file for run in runs for file in files_of(run.timeline)} | files_compared(self.result)

        if not scrub_paths:
            return with_links(document(self.result, pictures_of(runs)), files)
        of_a, of_b = (scrubber(each.result, files()) for each in (self.a, self.b))
        result = scrub_diff(self.result, self.a.result, self.b.result)
        return document(result, pictures_of(runs, lambda text: of_b(of_a(text))))

    def promise_document(self, commands: Sequence[str] = (), *, scrub_paths: bool = False) -> Document:
        """Returns a short document: the step time that run A's plan promised, and the step time of
        run B.

        Args:
            commands: Commands to list at the end. They show more.
            scrub_paths: Whether to shorten file paths.
        """
        result = scrub_diff(self.result, self.a.result, self.b.result) if scrub_paths else self.result
        return promised(result, commands)


def diff(
    before: str | Path | Timeline | Profile | Diagnosis,
    after: str | Path | Timeline | Profile | Diagnosis,
    *,
    step: str | None = None,
    user: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Difference:
    """Compares two runs. The result says what changed. If the first run's report has a plan of
    changes, the result also says whether the second run reached the step time that the plan
    promised.

    Several threads may call this function at the same time.

    Args:
        before: the first run: a trace file, a saved timeline, a `Timeline`, a profile, or a
            `Report`. If it is a report that was saved as .json, only step times and the plan are
            compared.
        after: the second run, in any of the forms of `before`.
        step: the name (or glob) of the annotation around one step, in both runs. By default, steps
            are detected.
        user: globs of the files that count as your code. By default, these are all files except
            framework files.
        progress: called with (bytes read so far, size of the file in bytes) while a file is read.

    Returns:
        The difference. `print` shows it. Its method `save` writes it as .html, .json, .md or .txt.
        Its property `json` is the versioned JSON form.

    Raises:
        TraceError: a file cannot be read, ends before its device events, or has no events.
        UsageError: no annotation has the name that `step` gives.
    """

    def diagnosed(source: str | Path | Timeline | Profile | Diagnosis) -> Diagnosis:
        if isinstance(source, Diagnosis):
            return source
        try:
            return explain(source, step=step, user=user, progress=progress)
        except TraceError:
            if isinstance(source, str | Path):
                with suppress(TraceError):
                    return Diagnosis(read_result(source))
            raise

    return Difference.between(diagnosed(before), diagnosed(after))
