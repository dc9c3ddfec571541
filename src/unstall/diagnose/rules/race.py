"""Finds data races: two accesses to the same memory without a defined order.

Races are found only if the recording has every access, as a recording of the virtual GPU has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import size
from unstall.race_words import TITLES, fix_of, saw
from unstall.result import Finding
from unstall.timeline.columns import I32, RaceKind

_SHOWN = 3  # streams
_Line: TypeAlias = tuple[int, str, bool]
_SAFE_IF = "always: the program then computes what its code says"


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two accesses of a race, with all streams on which the access is made."""

    place: int
    op: str
    streams: tuple[int, ...]  # rows of Streams; none for the host

    def told(self, run: Run) -> str:
        """Returns the access as text, such as "aten::sum at train.py:12 on stream 7". If the line
        is unknown, the text has no line.
        """
        where = run.places.where(self.place, -1, None)
        line = f" at {where.file}:{where.line}" if where.file else ""
        return f"{self.op}{line} on {self.named(run) or 'the host'}"

    def named(self, run: Run) -> str | None:
        """Returns the names of the streams as text, or None if the host makes the access."""
        if not self.streams:
            return None
        table = run.timeline.streams
        several = len(np.unique(table.device)) > 1
        named = [
            f"{int(table.stream[row])}" + (f" of device {int(table.device[row])}" if several else "")
            for row in self.streams
        ]
        if len(named) == 1:
            return f"stream {named[0]}"
        shown = ", ".join(named[:_SHOWN]) + (", …" if len(named) > _SHOWN else "")
        return f"{len(named)} streams ({shown})"


def race(run: Run) -> list[Finding]:
    """Returns a finding for each kind of race between each two source lines. The finding is at the
    line of the later access.

    The findings cover the whole run, not only its steps.
    """
    races = run.timeline.races
    by_pair: dict[tuple[int, _Line, _Line], list[int]] = {}
    for row, kind in enumerate(races.kind.tolist()):
        first = _line(run, int(races.earlier[row]), int(races.earlier_stream[row]))
        second = _line(run, int(races.later[row]), int(races.later_stream[row]))
        by_pair.setdefault((kind, first, second), []).append(row)
    findings = []
    for (code, first, second), rows in by_pair.items():
        kind = RaceKind(code)
        earlier, later = _side(first, races.earlier_stream[rows]), _side(second, races.later_stream[rows])
        calls = np.concatenate([races.later[rows], races.earlier[rows]])
        known = calls[calls >= 0].astype(np.int64)
        most = int(races.bytes[rows].max())
        findings.append(
            run.finding(
                "race",
                Group(later.place, later.op, known[:1] if races.later[rows[0]] >= 0 else known[:0]),
                title=TITLES[kind],
                saw=saw(kind, earlier.told(run), later.told(run), size(most)),
                fix=fix_of(kind, earlier.named(run), later.named(run)),
                safe_if=_SAFE_IF,
                count=int(races.count[rows].sum()),
                total_wait_ns=0,
                total_exposed_ns=0,
                wrong=True,
                spans=run.spans_of(np.unique(known)),
            )
        )
    return findings


def _line(run: Run, row: int, stream: int) -> _Line:
    """Returns `(place, operator, device)`: the source line of an access, its operator, and whether
    the device makes the access.

    Args:
        run: The recorded run.
        row: The access, as the index of a row of `timeline.host`; -1 if it is not known.
        stream: The stream of the access; a negative number if the host makes the access.
    """
    if row < 0:
        return -1, "an operation", stream >= 0
    name = run.places.op_name(row) or run.timeline.text(int(run.timeline.host.name[row]))
    return int(run.places.place[row]), name, stream >= 0


def _side(line: _Line, streams: I32) -> _Side:
    place, op, _ = line
    return _Side(place, op, tuple(np.unique(streams[streams >= 0]).tolist()))
