"""Adds source lines to a core dump: the lines of Python that launched the kernels. The lines come
from the saved result of the run that failed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from unstall.blaming.core_dump.result import CoreDump, Grid
from unstall.blaming.result import BlameResult, Line
from unstall.blaming.ring import name_in_results


def launched_by(dump: CoreDump, result: BlameResult) -> CoreDump:
    """Returns a copy of a core dump, to which the lines that may have launched each kernel are
    added.

    A line of Python in `result` may have launched a kernel if that kernel is among the line's
    unfinished work.
    """
    lines = list(_lines(result))

    def joined(grid: Grid) -> Grid:
        name = name_in_results(grid.linked)
        names = [f"{line.file}:{line.line}" for line, work in lines if name and name in work]
        return msgspec.structs.replace(grid, launched_by=tuple(dict.fromkeys(names)))

    return msgspec.structs.replace(dump, grids=tuple(map(joined, dump.grids)))


def _lines(result: BlameResult) -> Iterator[tuple[Line, tuple[str, ...]]]:
    for suspect in result.suspects:
        if suspect.where is not None:
            yield suspect.where, suspect.work
        yield from zip(suspect.others, suspect.others_work, strict=False)
