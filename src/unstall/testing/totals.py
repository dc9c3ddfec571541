"""Adds up what all tests of a run did, and compares each test with the baseline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import pytest

from unstall.errors import UsageError
from unstall.figures import counted
from unstall.testing.baseline import FAIL_ON_INCREASE, Baseline, Figures, written
from unstall.testing.counts_of_test import CountsOfTest, from_properties

Kind: TypeAlias = Literal["higher", "lower", "new", "not compared"]


@dataclass(frozen=True, slots=True)
class Change:
    """A test whose figures differ from those in the baseline file, or cannot be compared with them.

    Attributes:
        test: The test's id, as it stands in the file.
        kind: "higher" or "lower" for figures that differ, "new" for a test that the file does not
            have, "not compared" if a figure of the file was not counted this time.
        words: The figures that differ, or the names of those that were not counted; "" for a new
            test.
    """

    test: str
    kind: Kind
    words: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """What all tests of a run did, and how that differs from the baseline file.

    Attributes:
        tests: What each test did, by the test's id.
        baseline: The baseline file as it was before the run; None if the run uses none.
        changes: The tests that differ from the baseline.
        problem: Why the file could not be compared or written; "" if there was no problem.
        is_error: Whether `problem` makes the test run fail.
    """

    tests: Mapping[str, CountsOfTest]
    baseline: Baseline | None = None
    changes: list[Change] = field(default_factory=list)
    problem: str = ""
    is_error: bool = False

    @property
    def gpu(self) -> str:
        """The GPU and the version of torch; "" if no test used a GPU."""
        return next((counts.gpu for counts in self.tests.values() if counts.gpu), "")


def total(reports: Sequence[pytest.TestReport], baseline: Baseline | None) -> Totals:
    """Adds up the counts in the reports of the tests, and compares them with the baseline file.

    `baseline` is None if the run uses no such file. If `baseline.fails` is False, the file is
    updated.
    """
    outcomes = {report.nodeid: report.outcome for report in reports}
    tests = {report.nodeid: from_properties(report.user_properties) for report in reports}
    if baseline is None:
        return Totals(tests)
    if any(counts.is_unseen for counts in tests.values()):
        problem = "there is no GPU here to compare with: use --unstall-gpu h200"
        return Totals(tests, baseline, problem=problem, is_error=baseline.fails)
    now = {
        written(test): counts
        for test, counts in tests.items()
        if outcomes[test] == "passed" or FAIL_ON_INCREASE in counts.broken
    }
    changes = [each for test, counts in sorted(now.items()) for each in _changes(baseline, test, counts)]
    totals = Totals(tests, baseline, changes)
    if baseline.fails or not now:
        return totals
    kept = {test: each for test, each in baseline.figures.items() if test not in now}
    gpu = totals.gpu or baseline.gpu
    if kept and baseline.gpu not in ("", gpu):
        problem = (
            f"not updated: it is of {baseline.gpu}, this run is of {gpu}, and {counted(len(kept), 'test')} in it did "
            "not run or pass: delete it and run all tests"
        )
        return replace(totals, problem=problem, is_error=True)
    figures = {
        test: baseline.figures.get(test, _NOTHING).updated(Figures.of(counts))
        for test, counts in now.items()
        if counts.used_gpu or baseline.figures.get(test, _NOTHING).lost(Figures.of(counts))
    }
    try:
        baseline.write(gpu, kept | figures)
    except UsageError as error:
        return replace(totals, problem=str(error), is_error=True)
    return totals


def _changes(baseline: Baseline, test: str, counts: CountsOfTest) -> list[Change]:
    before = baseline.figures.get(test)
    now = Figures.of(counts)
    if before is None:
        return [Change(test, "new")] if counts.used_gpu else []
    found = []
    changes, lost = before.changes(now), before.lost(now)
    if changes:
        kind: Kind = "higher" if any(difference > 0 for _, difference in changes) else "lower"
        found.append(Change(test, kind, ", ".join(text for text, _ in changes)))
    if lost:
        found.append(Change(test, "not compared", " and ".join(lost)))
    return found


_NOTHING = Figures(None, None, None)
