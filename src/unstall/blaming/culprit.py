"""Finds the work that never finished.

The device writes numbers (marks) into a buffer (the ring). On each stream, the unfinished work is between the last mark
that the device wrote and the mark after it, which the device did not write.
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

    A mark is a number that the device writes when it reaches a point of the stream. The device wrote the mark before
    this work, but it did not write the mark after this work.

    Attributes:
        entries: The work, in order. One entry never finished, and the entries after this entry had not begun.
        blocked: Whether the stream may have done nothing but wait for an event of another stream. That other stream
            has unfinished work before the event.
        is_last: Whether this is the last work of the stream, without a mark after it. Such work may have finished.
        replays: If the work is in a CUDA graph, the launches of the graph. One of these launches never finished.
            Otherwise None.
    """

    entries: Rows
    blocked: bool = False
    is_last: bool = False
    replays: Rows | None = None

    @property
    def launch(self) -> Any:
        """The first entry of the work; for work in a graph, the entry of the first graph launch."""
        return self.entries[0] if self.replays is None else self.replays[0]


def unfinished(ring: Ring) -> list[Unfinished]:
    """Returns the work that was unfinished when the program ended. The work that most likely failed comes first."""
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
    """Yields the unfinished work of one stream. If the work replays CUDA graphs, yields one item per graph branch.

    `stream` is the index of the stream in the ring's table of streams.
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
    """Returns the index of the first row after `first` that comes right after a mark; len(rows) if there is none."""
    marks = np.flatnonzero(rows["marked"][first + 1 :] == MARKED)
    return int(first + 1 + marks[0]) if len(marks) else len(rows)


def _is_held_up(ring: Ring, wait: Any) -> bool:
    """Returns whether unfinished work precedes the event for which the entry `wait` waits."""
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
