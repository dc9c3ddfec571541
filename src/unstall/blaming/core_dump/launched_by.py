"""Adds source lines to a core dump: the lines that launched the kernels. They come from the saved result of a run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from unstall.blaming.core_dump.result import CoreDump, Grid
from unstall.blaming.result import BlameResult, Line
from unstall.blaming.ring import name_in_results


def launched_by(dump: CoreDump, result: BlameResult) -> CoreDump:
    """Returns a copy of the dump, with the lines that launched each kernel.

    A line of `result` counts as a line that launched a kernel if the line's unfinished work contains this kernel.
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
