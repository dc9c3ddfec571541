"""The plugin's section in the summary that pytest prints."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from unstall.figures import counted, size
from unstall.testing.baseline import FAIL_ON_INCREASE
from unstall.testing.limits import NO_GPU
from unstall.testing.totals import Change, Kind, Totals

_MOST = 10


def show(totals: Totals, terminal: pytest.TerminalReporter) -> None:
    """Writes the plugin's section of pytest's summary to `terminal`. Writes nothing if there is nothing to say."""
    lines = [*_sums(totals), *_limits(totals), *_waits(totals), *_baseline(totals)]
    if lines:
        terminal.write_sep("=", f"unstall: {totals.gpu}" if totals.gpu else "unstall")
        for line in lines:
            terminal.write_line(line)


def _sums(totals: Totals) -> list[str]:
    used = [counts for counts in totals.tests.values() if counts.used_gpu]
    if not totals.gpu:
        return []
    if not used:
        return ["no test used the GPU"]
    launches = sum(counts.launches or 0 for counts in used)
    syncs = sum(counts.syncs or 0 for counts in used)
    reserved = max(counts.reserved_bytes or 0 for counts in used)
    return [
        f"{counted(len(used), 'test')} used the GPU: {counted(launches, 'launch')}, {counted(syncs, 'wait')}, "
        f"{size(reserved)} reserved at most"
    ]


def _limits(totals: Totals) -> list[str]:
    broken = [
        (limit, test)
        for test, counts in totals.tests.items()
        for limit in counts.broken
        if limit != FAIL_ON_INCREASE  # these tests are named among the changes
    ]
    unchecked = [limit for counts in totals.tests.values() for limit in counts.unchecked]
    tests = sum(bool(counts.unchecked) for counts in totals.tests.values())
    lines = _listed(
        f"{counted(len(broken), 'limit')} exceeded:", [f"{limit}  {test}" for limit, test in sorted(broken)]
    )
    if unchecked:
        lines.append(f"{counted(len(unchecked), 'limit')} of {counted(tests, 'test')} not checked: {NO_GPU}")
    return lines


def _waits(totals: Totals) -> list[str]:
    often: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for counts in totals.tests.values():
        often.update(counts.lines)
        tests.update(counts.lines.keys())
    return _listed(
        "lines that wait most:",
        [f"{number:,}x in {counted(tests[line], 'test')}  {line}" for line, number in often.most_common()],
    )


def _baseline(totals: Totals) -> list[str]:
    baseline = totals.baseline
    if baseline is None:
        return []
    name = baseline.path.name
    if totals.problem:
        return [f"{name}: {totals.problem}"]
    kinds = {kind: [each for each in totals.changes if each.kind == kind] for kind in get_args(Kind)}
    told = ", ".join(f"{len(tests)} {kind}" for kind, tests in kinds.items() if tests) or "no change"
    lines = [f"{name}: {told}" + ("" if baseline.fails or not totals.changes else ": it was updated")]
    if baseline.gpu and totals.gpu and baseline.gpu != totals.gpu:
        lines.append(f"  it was of {baseline.gpu}, and this run is of {totals.gpu}")
    for tests in kinds.values():
        lines += [f"  {line}" for line in _listed("", [_change(each) for each in tests])]
    if baseline.fails and (kinds["lower"] or kinds["new"]):
        lines.append("  to update it: run pytest without --fail-on-increase, and commit it")
    return lines


def _change(change: Change) -> str:
    return f"{change.kind}: {change.test}" + (f": {change.words}" if change.words else "")


def _listed(title: str, entries: list[str]) -> list[str]:
    """Returns the lines of a list: `title`, and below it, indented, at most ten of `entries` and
    how many are left out. Returns [] if there are no entries.
    """
    if not entries:
        return []
    left = len(entries) - _MOST
    shown = [*entries[:_MOST], *([f"and {left:,} more"] if left > 0 else [])]
    return [title, *(f"  {entry}" for entry in shown)] if title else shown
