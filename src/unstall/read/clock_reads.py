"""Makes a `ClockReads` table of a trace's metadata (the JSON members beside its list of events).
The metadata of a trace of a virtual GPU tells, under the key "unstall", when and where the program
read the clock.

Times in the metadata are in ns on the clock of the trace file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from unstall.timeline.columns import I64, ClockReads, Lines
from unstall.timeline.limits import MOST_READS

_FURTHEST_NS = 2**54
_Time: TypeAlias = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
_Line: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Row: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MOST_READS)]


class DescribedReads(Struct):
    """When and where the program read the clock, as a trace file of a virtual GPU tells it.

    Attributes:
        places: The places at which the program reads the clock, as (file, line, function).
        reads: Each read of the host's clock as (time, index in `places`). The time is in ns on the
            clock of the trace file.
        device_reads: In the same form, each read of a device's clock, by the time between two CUDA
            events.
    """

    places: list[tuple[str, _Line, str]] = []
    reads: list[tuple[_Time, _Row]] = []
    device_reads: list[tuple[_Time, _Row]] = []


class DescribesReads(Struct):
    """The field of a trace file, under its key "unstall", that tells when and where the program read the clock."""

    clock_reads: DescribedReads = msgspec.field(default_factory=DescribedReads)


def clock_reads_of(
    told: DescribedReads, zero_ns: int, lines: Lines, text: Callable[[str], int]
) -> tuple[Lines, ClockReads]:
    """Returns `(lines, reads)`: the table `lines` with rows added for the lines that read the
    clock, and the table of the reads.

    Args:
        told: The reads, as the trace file tells them. A read whose place is unknown is left out.
        zero_ns: Time 0 of the timeline, in ns on the clock of the trace file.
        lines: The source lines of the timeline.
        text: Returns the index of a text in the timeline's strings.
    """
    reads = [*((read, True) for read in told.reads), *((read, False) for read in told.device_reads)]
    kept = [(time - zero_ns, place, of_host) for (time, place), of_host in reads if place < len(told.places)]
    kept = [read for read in kept if abs(read[0]) < _FURTHEST_NS]
    if not kept:
        return lines, ClockReads.none()
    times, places, of_host = np.array(kept, np.int64).T
    lines, rows = with_lines(lines, [(text(file), line, text(function)) for file, line, function in told.places])
    order = np.argsort(times, kind="stable")
    return lines, ClockReads(times[order], rows[places[order]].astype(np.int32), of_host[order].astype(np.bool_))


def with_lines(lines: Lines, places: list[tuple[int, int, int]]) -> tuple[Lines, I64]:
    """Returns `(lines, rows)`: the table `lines` with a row added for each place that it lacks, and
    the row of each place.

    Args:
        lines: The source lines of a timeline.
        places: The places, as (file, line, function). File and function are indices in the
            timeline's strings.
    """
    columns = (lines.file.tolist(), lines.line.tolist(), lines.function.tolist())
    row_of = {place: row for row, place in enumerate(zip(*columns, strict=True))}
    rows = np.array([row_of.setdefault(place, len(row_of)) for place in places], np.int64)
    new = list(row_of)[len(lines) :]
    if not new:
        return lines, rows
    file, line, function = (np.array(column, np.int32) for column in zip(*new, strict=True))
    return replace(
        lines,
        file=np.concatenate((lines.file, file)),
        line=np.concatenate((lines.line, line)),
        function=np.concatenate((lines.function, function)),
        exact=np.concatenate((lines.exact, np.ones(len(new), np.bool_))),
        digest=np.concatenate((lines.digest, np.full(len(new), -1, np.int64))),
    ), rows
