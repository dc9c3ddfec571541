"""Finds the work of a program that never finished.

On each stream, the device writes marks into the ring file. A mark is the number of a piece of work.
The device writes it when it reaches that point of the stream. The unfinished work is between the
last mark that the device wrote and the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from unstall.blaming.ring import BEGUN, FINISHED, GRAPH, MARKED, NEVER, RECORD, WAIT, Ring, Rows


@dataclass(frozen=True, eq=False, slots=True)
class Unfinished:
    """Work on one stream, or in one branch of a CUDA graph. Some of this work never finished.

    A mark is a number that the device writes when it reaches a point of the stream. The device
    wrote the mark before this work, but it did not write the mark after this work. The ring file is
    the file in which the program recorded its work.

    Attributes:
        entries: The work, as rows of the ring file, in order. One of the rows never finished, and
            the rows after it had not begun.
        blocked: Whether the stream may have done nothing but wait for an event of another stream
            that also has unfinished work, before the event.
        is_last: Whether this is the last work of the stream, without a mark after it. Such work may
            have finished.
        replays: If the work is in a CUDA graph, the rows of the ring file for the graph's launches.
            One of these launches never finished. None if the work is not in a CUDA graph.
    """

    entries: Rows
    blocked: bool = False
    is_last: bool = False
    replays: Rows | None = None

    @property
    def launch(self) -> Any:
        """The call that launched this work, as a row of the ring file (the file in which the
        program recorded its work). If the work is in a CUDA graph, the first call that launched the
        graph.
        """
        return self.entries[0] if self.replays is None else self.replays[0]


def unfinished(ring: Ring) -> list[Unfinished]:
    """Returns the work that was unfinished when the program ended. The work that most likely failed
    comes first.

    `ring` is the content of the file in which the program recorded its work.
    """
    found = [each for stream in range(len(ring.tables["streams"])) for each in on_stream(ring, stream)]
    return sorted(found, key=_unlikeliness)


def _unlikeliness(each: Unfinished) -> tuple[bool, bool, int]:
    """Returns a sort key that is lowest for the work that most likely failed.

    No mark follows the last work of a stream, so this work may have finished. The earlier it was launched, the more
    likely it has finished.
    """
    number = int(each.launch["number"])
    return each.blocked, each.is_last, -number if each.is_last else number


def on_stream(ring: Ring, stream: int) -> Iterator[Unfinished]:
    """Yields the unfinished work of one stream. If this work consists of launches of CUDA graphs,
    yields one item for each branch of the graphs that were running.

    Args:
        ring: The content of the file in which the program recorded its work.
        stream: The index of the stream in the table `streams` of `ring`.
    """
    entries = ring.entries
    rows = entries[(entries["stream"] == stream) & (entries["number"] > ring.done[stream])]
    work = np.flatnonzero(rows["kind"] < RECORD)
    if not len(work):
        return
    first = work[0]
    blocked = any(_is_held_up(ring, wait) for wait in rows[:first] if wait["kind"] == WAIT)
    until = next_mark(rows, first)
    of_window = rows[first:until]
    of_window = of_window[of_window["kind"] < RECORD]
    replays = of_window[of_window["kind"] == GRAPH]
    graphs = list(_in_graphs(ring)) if len(replays) else []
    for entries_of_graph in graphs:
        yield Unfinished(entries_of_graph, blocked, replays=replays)
    if not graphs:
        yield Unfinished(of_window, blocked, is_last=until == len(rows))


def next_mark(rows: Rows, first: int) -> int:
    """Returns the index of the first row after row `first` that comes right after a mark. If there
    is none, returns the number of rows.

    A mark is a number that the device writes when it reaches a point of the stream.

    Args:
        rows: The calls that put work on one stream, in order, as rows of the ring file.
        first: The index of a row in `rows`.
    """
    marks = np.flatnonzero(rows["marked"][first + 1 :] == MARKED)
    return int(first + 1 + marks[0]) if len(marks) else len(rows)


def _is_held_up(ring: Ring, wait: Any) -> bool:
    """Returns whether unfinished work comes before an event. The event is the one for which the row
    `wait` of the ring file waits.
    """
    record = ring.record_of(wait)
    if record is None:
        return False
    entries = ring.entries
    before = entries[(entries["stream"] == record["stream"]) & (entries["number"] < record["number"])]
    return bool(np.any((before["kind"] < RECORD) & (before["number"] > ring.done[record["stream"]])))


def _in_graphs(ring: Ring) -> Iterator[Rows]:
    """Yields the unfinished work of each branch of the graphs that were being replayed."""
    captures = ring.tables["captures"]
    for capture in np.unique(captures["capture"]):
        rows = np.flatnonzero(captures["capture"] == capture)
        values = {int(row): ring.slot(int(row)) for row in rows}
        if any(value == FINISHED for value in values.values()) or all(value == NEVER for value in values.values()):
            continue
        for row, value in values.items():
            of_branch = ring.captured[(ring.captured["slot"] == 1024 + row) & (ring.captured["number"] > 0)]
            rest = of_branch if value in (BEGUN, NEVER) else of_branch[of_branch["number"] > value]
            if value != NEVER and len(rest):
                yield rest[: next_mark(rest, 0)]
