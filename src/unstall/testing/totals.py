"""What the tests of a run did together, and how that changes the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from unstall.errors import UsageError
from unstall.testing.baseline import FAIL_ON_INCREASE, Baseline, Figures, written
from unstall.testing.counts import Counts, from_properties


@dataclass(frozen=True, slots=True)
class Change:
    """A test whose figures differ from the baseline's. No words: it is new there."""

    test: str
    words: str
    is_higher: bool = False


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of tests by their ids, and how they differ from the baseline, if there is one.

    `baseline` is the file as it was before the run, and `problem` why it could not be compared or written.
    """

    tests: Mapping[str, Counts]
    baseline: Baseline | None = None
    changes: list[Change] = field(default_factory=list)
    problem: str = ""

    @property
    def gpu(self) -> str:
        return next((counts.gpu for counts in self.tests.values() if counts.gpu), "")


def total(reports: Sequence[pytest.TestReport], baseline: Baseline | None) -> Totals:
    """Adds up what reports say, and writes the baseline unless it is to be kept as it is."""
    outcomes = {report.nodeid: report.outcome for report in reports}
    tests = {report.nodeid: from_properties(report.user_properties) for report in reports}
    if baseline is None:
        return Totals(tests)
    if any(counts.is_unseen for counts in tests.values()):
        return Totals(tests, baseline, problem="there is no GPU here to compare with: use --unstall-gpu h200")
    now = {
        written(test): counts
        for test, counts in tests.items()
        if outcomes[test] == "passed" or FAIL_ON_INCREASE in counts.broken
    }
    changes = [each for test, counts in sorted(now.items()) for each in _changes(baseline, test, counts)]
    totals = Totals(tests, baseline, changes)
    if baseline.fails or not now:
        return totals
    figures = {test: Figures.of(counts) for test, counts in now.items() if counts.used_gpu}
    kept = {test: each for test, each in baseline.figures.items() if test not in now}
    try:
        baseline.write(totals.gpu or baseline.gpu, kept | figures)
    except UsageError as error:
        return replace(totals, problem=str(error))
    return totals


def _changes(baseline: Baseline, test: str, counts: Counts) -> list[Change]:
    before = baseline.figures.get(test)
    if before is None:
        return [Change(test, "")] if counts.used_gpu else []
    changes = before.changes(Figures.of(counts))
    words = ", ".join(text for text, _ in changes)
    return [Change(test, words, any(difference > 0 for _, difference in changes))] if changes else []
