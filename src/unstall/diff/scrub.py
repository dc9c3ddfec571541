"""Shorter paths in a comparison."""

from __future__ import annotations

from unstall.diff.result import CopyChange, DiffResult, KernelChange, LineChange, WaitChange
from unstall.report.scrub import scrubber
from unstall.report.wording import map_texts
from unstall.result import Result


def scrub(result: DiffResult, a: Result, b: Result) -> DiffResult:
    """`result` with every path shortened, in its texts too; `a` and `b` are what it compares."""
    files = _files(result)
    for run in (a, b):
        files |= {file for line in run.lines if (file := line.where.file)}
    of_a, of_b = scrubber(a, files), scrubber(b, files)
    return map_texts(result, lambda text: of_b(of_a(text)))


def _files(result: DiffResult) -> set[str]:
    """Every path that the comparison names."""
    changes: list[WaitChange | CopyChange | KernelChange | LineChange]
    changes = [*result.waits, *result.copies, *result.kernels, *result.lines]
    wheres = [where for change in changes for where in (change.where_a, change.where_b) if where]
    files = {where.file for where in wheres} | {where.called_from.file for where in wheres if where.called_from}
    return {file for file in files if file}
