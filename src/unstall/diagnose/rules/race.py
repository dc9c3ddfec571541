"""Data races: two accesses of the same memory without a defined order. Found only if the run records every access."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import size
from unstall.result import Finding
from unstall.timeline.columns import RaceKind

_TITLES = {
    RaceKind.READ_EARLY: "Race: read before the write has finished",
    RaceKind.WRITTEN_TWICE: "Race: written twice, in no order",
    RaceKind.OVERWRITTEN_EARLY: "Race: overwritten before the read has finished",
    RaceKind.REUSED: "Race: freed memory is reused while another stream still uses it",
    RaceKind.TAKEN_EARLY: "Race: memory is used on a stream that does not wait for the stream that allocated it",
}
_ACCESSES = {
    RaceKind.READ_EARLY: ("reads", "writes"),
    RaceKind.WRITTEN_TWICE: ("writes", "writes"),
    RaceKind.OVERWRITTEN_EARLY: ("writes", "reads"),
    RaceKind.REUSED: ("uses", "uses"),
    RaceKind.TAKEN_EARLY: ("uses", "uses"),
}
_SAFE_IF = "always: the program then computes what its code says"


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two accesses."""

    place: int
    op: str
    stream: int  # row of Streams, or -1 for the host

    def told(self, run: Run) -> str:
        """Returns "aten::sum at train.py:12 on stream 7", without the line if it is unknown."""
        where = run.places.where(self.place, -1, None)
        line = f" at {where.file}:{where.line}" if where.file else ""
        return f"{self.op}{line} {self.on(run)}"

    def on(self, run: Run) -> str:
        if self.stream < 0:
            return "on the host"
        streams = run.timeline.streams
        device = f" of device {int(streams.device[self.stream])}" if len(np.unique(streams.device)) > 1 else ""
        return f"on stream {int(streams.stream[self.stream])}{device}"


def race(run: Run) -> list[Finding]:
    """Returns one finding for each kind of race and pair of places, at the later access. Races are searched in the
    whole run, not only in its steps."""
    races = run.timeline.races
    by_pair: dict[tuple[int, _Side, _Side], list[int]] = {}
    for row, kind in enumerate(races.kind.tolist()):
        sides = (
            _side(run, int(races.earlier[row]), int(races.earlier_stream[row])),
            _side(run, int(races.later[row]), int(races.later_stream[row])),
        )
        by_pair.setdefault((kind, *sides), []).append(row)
    findings = []
    for (code, earlier, later), rows in by_pair.items():
        kind = RaceKind(code)
        calls = np.concatenate([races.later[rows], races.earlier[rows]])
        known = calls[calls >= 0].astype(np.int64)
        does, did = _ACCESSES[kind]
        still = f"{earlier.told(run)} may not have {'read' if did == 'reads' else 'written'} yet"
        if did == "uses":
            still = f"{earlier.told(run)} may still be using for the tensor that was there before"
        most = int(races.bytes[rows].max())
        findings.append(
            run.finding(
                "race",
                Group(later.place, later.op, known[:1] if races.later[rows[0]] >= 0 else known[:0]),
                title=_TITLES[kind],
                saw=f"{later.told(run)} {does} {size(most)} that {still}: nothing orders the two",
                fix=_fix(run, kind, earlier, later),
                safe_if=_SAFE_IF,
                count=int(races.count[rows].sum()),
                total_wait_ns=0,
                total_exposed_ns=0,
                wrong=True,
                spans=run.spans_of(np.unique(known)),
            )
        )
    return findings


def _side(run: Run, row: int, stream: int) -> _Side:
    if row < 0:
        return _Side(-1, "an operation", stream)
    name = run.places.op_name(row) or run.timeline.text(int(run.timeline.host.name[row]))
    return _Side(int(run.places.place[row]), name, stream)


def _fix(run: Run, kind: RaceKind, earlier: _Side, later: _Side) -> str:
    if later.stream < 0:
        before = "reading" if kind == RaceKind.READ_EARLY else "writing to the buffer again"
        return (
            f"wait for the copy before {before}: event.record() after it and event.synchronize(), or "
            "stream.synchronize(); or copy without non_blocking=True"
        )
    first, second = earlier.on(run).removeprefix("on "), later.on(run).removeprefix("on ")
    if kind == RaceKind.REUSED:
        return (
            f"tensor.record_stream(stream) for {first}, before the tensor is freed; or let {second} wait for it "
            "before that: stream.wait_stream(other)"
        )
    return f"let {second} wait for {first} in between: stream.wait_stream(other), or an event's record() and wait()"
