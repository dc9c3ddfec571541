"""Gives numbers to the source lines and texts of two runs. The same line or text has the same number in both runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace

from unstall.changes.match import ComparedPlace, pairs_of_places
from unstall.diagnose.run import Run
from unstall.locate.operations import has_operators
from unstall.locate.places import find_places, programs
from unstall.locate.platform import counterpart
from unstall.result import Where
from unstall.timeline.columns import I32, I64, Bool, HostKind
from unstall.timeline.grouping import distinct

MatchedBy = Literal["line", "function", "operator"]
_LAUNCHING = (HostKind.LAUNCH, HostKind.GRAPH_LAUNCH)  # what they launch says more


@dataclass(frozen=True, eq=False, slots=True)
class ComparedRun:
    """One of two runs that are compared.

    A number that stands for a source line, an operator or a name is the same in both runs. The
    columns `place`, `step` and `label` have one element per row of `timeline.host`.

    Attributes:
        run: The run.
        place: The number of the source line; 0 if there is none.
        step: The index of the step; -1 outside of the steps.
        label: The number of the name of the outermost operator around the event. If there is no
            operator, the number of the event's own name.
        text: For each text of the timeline, its number.
        several: Numbers in `place` that stand for several lines of one function.
        ops: The device ops that count, as indices of rows of `timeline.device`: those launched in
            the steps, and those without a known launch that ran during the steps.
        op_step: For each element of `ops`, the index of the step.
        op_place: For each element of `ops`, the number of the source line that launched it.
    """

    run: Run
    place: I64
    step: I64
    label: I64
    text: I64
    several: frozenset[int]
    ops: I64
    op_step: I64
    op_place: I64

    @property
    def steps(self) -> int:
        return len(self.run.steps)

    def where(self, row: int, label: int, texts: Sequence[str]) -> Where | None:
        """Returns the source line of an event of the host, in the form that reports print; None if
        `row` is -1.

        Args:
            row: The event, as the index of a row of `timeline.host`; or -1.
            label: The event's operator, as an index into `texts`; -1 if the event has no operator.
            texts: Names of operators.
        """
        if row < 0:
            return None
        where = self.run.places.where(int(self.run.places.place[row]), row, texts[label] if label >= 0 else None)
        if int(self.place[row]) in self.several:
            where = msgspec.structs.replace(where, line=None, line_is=None)
        return where


@dataclass(frozen=True, eq=False, slots=True)
class Sides:
    """Two runs that are compared, with common numbers for their source lines and texts.

    Attributes:
        a: The earlier run.
        b: The later run.
        places: How many numbers the source lines have: from 0 to `places` - 1.
        texts: The texts. The number of a text is its index.
        matched_by: Whether the places of the runs are matched by line, by function, or by operator.
    """

    a: ComparedRun
    b: ComparedRun
    places: int
    texts: tuple[str, ...]
    matched_by: MatchedBy

    def negligible(self, ns: int) -> bool:
        """Returns whether a time of `ns` per step is too short to be measured in either run."""
        return all(side.run.negligible(abs(ns) * side.steps) for side in (self.a, self.b))


def bring_together(a: Run, b: Run) -> Sides:
    """Matches the source lines of two runs, and gives them common numbers.

    If only one of the two recordings has the lines that ran, lines are matched by their function.
    If a run has no stacks, operators are matched instead.
    """
    matched_by: MatchedBy = "line"
    if not (a.timeline.meta.has_stacks and b.timeline.meta.has_stacks):
        matched_by = "operator"
        a, b = _without_stacks(a), _without_stacks(b)
    elif _exact(a) != _exact(b):
        matched_by = "function"
    rows = [_rows(run) for run in (a, b)]
    numbers = [distinct(run.places.place[of]) for run, of in zip((a, b), rows, strict=True)]
    operators = has_operators(a.timeline) and has_operators(b.timeline)
    known = [
        _known(run, of, used, which, operators=operators)
        for run, of, (used, which) in zip((a, b), rows, numbers, strict=True)
    ]
    keys = _by_function(known) if matched_by == "function" else _by_place(known)
    texts: dict[str, int] = {}
    shown: dict[int, str] = {}
    sides = []
    for run, of, (_, which), key in zip((a, b), rows, numbers, keys, strict=True):
        place = np.zeros(len(run.timeline.host), dtype=np.int64)
        place[of] = key[which]
        common, times = np.unique(key, return_counts=True)
        sides.append(_side(run, place, texts, shown, frozenset(common[times > 1].tolist())))
    places = 1 + max(int(key.max(initial=0)) for key in keys)
    return Sides(sides[0], sides[1], places, tuple(shown[number] for number in range(len(texts))), matched_by)


def _side(run: Run, place: I64, texts: dict[str, int], shown: dict[int, str], several: frozenset[int]) -> ComparedRun:
    host, device, steps = run.timeline.host, run.timeline.device, run.steps
    # Calls of CUDA and HIP that do the same are one, under the name that run A has.
    text = np.array([texts.setdefault(counterpart(name), len(texts)) for name in run.timeline.strings], dtype=np.int64)
    for number, own in zip(text.tolist(), run.timeline.strings, strict=True):
        shown.setdefault(number, own)
    step = np.where(run.inside, np.searchsorted(steps.start, host.start, side="right") - 1, -1)
    top = run.places.top_op
    name = np.where(top >= 0, host.name[np.maximum(top, 0)], host.name) if len(host) else host.name
    joined = device.launch >= 0
    launch = np.maximum(device.launch, 0)
    of_host = joined & (step[launch] >= 0) if len(host) else joined
    orphan = ~joined & run.ops_inside
    rows = np.flatnonzero(of_host | orphan)
    by_time = np.clip(np.searchsorted(steps.start, device.start[rows], side="right") - 1, 0, len(steps) - 1)
    known = joined[rows]
    return ComparedRun(
        run=run,
        place=place,
        step=step.astype(np.int64),
        label=_numbers(text, name),
        text=text,
        several=several,
        ops=rows,
        op_step=np.where(known, step[launch[rows]], by_time) if len(host) else by_time,
        op_place=np.where(known, place[launch[rows]], 0) if len(host) else np.zeros(len(rows), dtype=np.int64),
    )


def _numbers(text: I64, names: I32) -> I64:
    if not len(text):
        return np.full(len(names), -1, dtype=np.int64)
    return np.where(names >= 0, text[np.maximum(names, 0)], -1)


def _rows(run: Run) -> I64:
    """Returns the events of the host to compare, as indices of rows of `timeline.host`: launches,
    waits, and causes of idle time.
    """
    launch = run.timeline.device.launch
    culprit = run.gaps.culprit
    parts = launch[launch >= 0], run.activity.waits.row, culprit[culprit >= 0]
    return np.unique(np.concatenate(parts)).astype(np.int64)


def _known(run: Run, rows: I64, used: I64, which: I64, *, operators: bool) -> list[ComparedPlace]:
    """Returns the source lines whose numbers are in `used`. Each line has the names of the work
    that the events at this line do.

    These are the names of kernels, copies, and calls that are not launches. If `operators` is true,
    the names of operators are included.
    """
    timeline, lines = run.timeline, run.timeline.lines
    host, device = timeline.host, timeline.device
    top = run.places.top_op[rows]
    op = np.where(top >= 0, host.name[np.maximum(top, 0)], -1) if operators and len(rows) else np.full(len(rows), -1)
    call = np.where(np.isin(host.kind[rows], _LAUNCHING), -1, host.name[rows])
    ops = np.flatnonzero(device.launch >= 0)
    of_op = which[np.searchsorted(rows, device.launch[ops])]
    does: list[set[str]] = [set() for _ in used]
    width = len(timeline.strings) + 1
    for places, names in ((which, op), (which, call), (of_op, device.name[ops])):
        for key in np.unique(places * width + names + 1).tolist():
            if key % width:
                does[key // width].add(counterpart(timeline.text(key % width - 1)))
    run_files = {timeline.strings[index] for index in programs(timeline)}
    known = []
    for place, work in zip(used.tolist(), does, strict=True):
        where = run.places.where(place, -1, None)
        digest = int(lines.digest[place]) if 0 <= place < len(lines) else -1
        known.append(ComparedPlace(where, frozenset(work), where.file in run_files, digest))
    return known


def _by_place(known: Sequence[Sequence[ComparedPlace]]) -> tuple[I64, I64]:
    """Returns a number for each place of both runs.

    A place that is in both runs has the same number in both. Numbers begin at 1. An unknown place has 0.
    """
    a, b = (np.zeros(len(places), dtype=np.int64) for places in known)
    for number, (i, j) in enumerate(pairs_of_places(*known), 1):
        a[i] = b[j] = number
    following = 1 + max(int(a.max(initial=0)), int(b.max(initial=0)))
    for keys, places in ((a, known[0]), (b, known[1])):
        for i in np.flatnonzero(keys == 0).tolist():
            keys[i], following = following, following + 1
        keys[[i for i, place in enumerate(places) if place.where == Where()]] = 0
    return a, b


def _by_function(known: Sequence[Sequence[ComparedPlace]]) -> tuple[I64, I64]:
    """Returns a number for each place of both runs. All lines of a function have the same number."""
    lineless = [
        sorted({(place.where.file or "", place.where.function or "", place.of_program) for place in places})
        for places in known
    ]
    functions = [
        [
            ComparedPlace(Where(file=file or None, function=name or None), frozenset(), program)
            for file, name, program in names
        ]
        for names in lineless
    ]
    keys = _by_place(functions)
    at = [dict(zip(names, of.tolist(), strict=True)) for names, of in zip(lineless, keys, strict=True)]
    a, b = (
        np.array(
            [of[place.where.file or "", place.where.function or "", place.of_program] for place in places],
            dtype=np.int64,
        )
        for places, of in zip(known, at, strict=True)
    )
    return a, b


def _exact(run: Run) -> bool:
    """Returns whether the run has lines that ran in the user's code, instead of only the `def` lines of functions."""
    mine: Bool = run.places.is_user_frame
    return bool(run.timeline.lines.exact[run.timeline.stacks.line[mine]].any())


def _without_stacks(run: Run) -> Run:
    """Returns a copy of the run without stacks. Its places are annotations and operators."""
    timeline = run.timeline
    if not len(timeline.stacks):
        return run
    stacks, lines = timeline.stacks, timeline.lines
    none = np.full(len(timeline.host), -1, dtype=np.int32)
    bare = replace(
        timeline,
        host=replace(timeline.host, stack=none),
        stacks=replace(stacks, parent=stacks.parent[:0], line=stacks.line[:0]),
        lines=replace(
            lines,
            file=lines.file[:0],
            line=lines.line[:0],
            function=lines.function[:0],
            exact=lines.exact[:0],
            digest=lines.digest[:0],
        ),
    )
    step = run.steps.name if run.steps.found_by == "annotation" else None
    return replace(run, timeline=bare, places=find_places(bare, (), step))
