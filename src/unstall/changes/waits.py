"""Compares the waits of two runs by source line and operator. Waits can be new, gone, or changed in
number or length.
"""

from __future__ import annotations

import numpy as np

from unstall.changes.groups import Grouped, common, largest_first, present
from unstall.changes.result import WaitChange
from unstall.changes.sides import ComparedRun, Sides
from unstall.changes.spread import count, time
from unstall.locate.operations import has_operators
from unstall.result import Where
from unstall.timeline.columns import I64


def waits(sides: Sides) -> tuple[tuple[WaitChange, ...], int]:
    """Returns `(changes, unchanged)`: the groups of waits that differ between two runs, largest
    change first; the number of groups that do not differ. A group has the waits at one source line
    and in one operator.
    """
    rows = _rows(sides.a), _rows(sides.b)
    group_a, group_b, groups = common(_keys(sides, sides.a, rows[0]), _keys(sides, sides.b, rows[1]))
    a = Grouped(group_a, sides.a.step[rows[0]], groups, sides.a.steps)
    b = Grouped(group_b, sides.b.step[rows[1]], groups, sides.b.steps)
    counts = a.sums(_first_of_each(sides.a, rows[0])), b.sums(_first_of_each(sides.b, rows[1]))
    waited = a.sums(sides.a.run.waited[rows[0]]), b.sums(sides.b.run.waited[rows[1]])
    exposed = a.sums(sides.a.run.exposed_by_waits[rows[0]]), b.sums(sides.b.run.exposed_by_waits[rows[1]])
    first = a.first(rows[0]), b.first(rows[1])

    def change_of(i: int) -> WaitChange | None:
        row_a, row_b = int(first[0][i]), int(first[1][i])
        change = WaitChange(
            status=present(row_a, row_b),
            where_a=_where(sides, sides.a, row_a),
            where_b=_where(sides, sides.b, row_b),
            count=count(*counts, i),
            wait_ns=time(*waited, i),
            exposed_ns=time(*exposed, i),
        )
        alike = change.status == "changed" and change.count.same and not _notable(sides, change)
        return None if alike else change

    return largest_first(map(change_of, range(groups)), _order)


def _rows(side: ComparedRun) -> I64:
    """Returns the waits in the steps, as indices of rows of `timeline.host`, ascending."""
    rows = side.run.activity.waits.row
    return np.sort(rows[side.step[rows] >= 0]).astype(np.int64)


def _keys(sides: Sides, side: ComparedRun, rows: I64) -> I64:
    """Returns a number for each wait's place and operator.

    If only one run has operators, the number is for the place only.
    """
    label = side.label[_operation(side, rows)]
    if has_operators(sides.a.run.timeline) != has_operators(sides.b.run.timeline):
        label = np.zeros_like(label)
    return side.place[rows] * (len(sides.texts) + 1) + label + 1


def _operation(side: ComparedRun, rows: I64) -> I64:
    """Returns, for each row, the operation that contains the row; the row itself if no operation contains it."""
    operation = side.run.places.operation[rows]
    return np.where(operation >= 0, operation, rows).astype(np.int64)


def _first_of_each(side: ComparedRun, rows: I64) -> I64:
    """Returns 1 for the first row of each operation, and 0 for the operation's other rows.

    For example, one `.to()` may wait in two calls, but it counts once.
    """
    _, first = np.unique(_operation(side, rows), return_index=True)
    one = np.zeros(len(rows), dtype=np.int64)
    one[first] = 1
    return one


def _where(sides: Sides, side: ComparedRun, row: int) -> Where | None:
    if row < 0:
        return None
    operation = int(_operation(side, np.array([row], dtype=np.int64))[0])
    return side.where(row, int(side.label[operation]), sides.texts)


def _notable(sides: Sides, change: WaitChange) -> bool:
    times = change.wait_ns, change.exposed_ns
    return any(time.beyond_noise and not sides.negligible(time.change) for time in times)


def _order(change: WaitChange) -> tuple[int, list[str], int, list[float]]:
    size = max(abs(change.wait_ns.change), abs(change.exposed_ns.change))
    where = sorted(map(str, (change.where_a, change.where_b)))
    return -size, where, -abs(change.wait_ns.change), sorted((change.count.a, change.count.b))
