"""Compares the costs of the source lines of two runs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from unstall.changes.groups import Grouped, largest_first, present
from unstall.changes.result import LineChange
from unstall.changes.sides import ComparedRun, Sides
from unstall.changes.spread import Sums, count, time
from unstall.timeline.columns import I64


def lines(sides: Sides) -> tuple[tuple[LineChange, ...], int]:
    """Returns `(changes, unchanged)`: the source lines whose cost differs between two runs, largest
    difference first; the number of all other lines.
    """
    a, b = _costs(sides.a, sides.places), _costs(sides.b, sides.places)
    used = np.flatnonzero((a.first >= 0) | (b.first >= 0)).tolist()
    return largest_first((_change(sides, a, b, i) for i in used), _order)


@dataclass(frozen=True, eq=False, slots=True)
class _Costs:
    """The costs of the lines of one run. Each column has one element per place."""

    first: I64  # first host row of the place
    launches: Sums
    cost: Sums
    device: Sums
    idle: Sums
    wait: Sums


def _costs(side: ComparedRun, places: int) -> _Costs:
    run, device, gaps = side.run, side.run.timeline.device, side.run.gaps
    low, high = run.window

    def by_place(place: I64, step: I64, values: I64) -> Sums:
        return Grouped(place, np.maximum(step, 0), places, side.steps).sums(values)

    joined = np.flatnonzero(device.launch[side.ops] >= 0)
    ops = side.ops[joined]
    launch = device.launch[ops].astype(np.int64)
    within = np.maximum(np.minimum(device.end[ops], high) - np.maximum(device.start[ops], low), 0)
    calls = np.unique(launch)
    waits = run.activity.waits.row[side.step[run.activity.waits.row] >= 0].astype(np.int64)
    blamed = np.flatnonzero(gaps.culprit >= 0)
    culprit = gaps.culprit[blamed].astype(np.int64)

    rows = np.unique(np.concatenate((calls, waits, culprit)))
    first = np.full(places, -1, dtype=np.int64)
    first[side.place[rows][::-1]] = rows[::-1]
    costing, costs = np.concatenate((launch, culprit)), np.concatenate((within, gaps.length[blamed]))
    return _Costs(
        first=first,
        launches=by_place(side.place[calls], side.step[calls], np.ones(len(calls), dtype=np.int64)),
        cost=by_place(side.place[costing], side.step[costing], costs),
        device=by_place(side.place[launch], side.step[launch], within),
        idle=by_place(side.place[culprit], side.step[culprit], gaps.length[blamed]),
        wait=by_place(side.place[waits], side.step[waits], run.host_length[waits]),
    )


def _change(sides: Sides, a: _Costs, b: _Costs, place: int) -> LineChange | None:
    """Returns the change of a place's cost, or None if the cost hardly differs."""
    row_a, row_b = int(a.first[place]), int(b.first[place])
    change = LineChange(
        status=present(row_a, row_b),
        where_a=sides.a.where(row_a, -1, ()),
        where_b=sides.b.where(row_b, -1, ()),
        launches=count(a.launches, b.launches, place),
        cost_ns=time(a.cost, b.cost, place),
        device_ns=time(a.device, b.device, place),
        idle_ns=time(a.idle, b.idle, place),
        wait_ns=time(a.wait, b.wait, place),
    )
    times = change.cost_ns, change.device_ns, change.idle_ns, change.wait_ns
    notable = [each for each in times if not sides.negligible(each.change)]
    if notable and change.status == "changed" and not any(each.beyond_noise for each in notable):
        return msgspec.structs.replace(change, status="within noise")
    return change if notable else None


def _order(change: LineChange) -> tuple[int, list[str]]:
    """Returns a sort key that puts the largest change first.

    The size of a change is the larger of two numbers: the change of device time plus idle time, and the change of wait
    time.
    """
    size = max(abs(change.cost_ns.change), abs(change.wait_ns.change))
    return -size, sorted(map(str, (change.where_a, change.where_b)))
