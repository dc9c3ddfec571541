"""When the hosts of ranks sleep, load data or wait for the device, by stretch and by source line. That is no work: no
other rank could do a part of it, and a rank that does not do it needs nothing else instead."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.fleets.stretches import Stretches
from unstall.fleets.summary import Cost, Rank
from unstall.replay.program import Code, Program
from unstall.timeline.columns import I32, I64
from unstall.timeline.grouping import is_one_of

_Reals = NDArray[np.float64]
_IDLE = (Cost.ASLEEP, Cost.LOADING)
_WAITS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT)


class ByLine(msgspec.Struct, frozen=True, eq=False):
    """Something that each line of several ranks has in each stretch. Rows are combinations of a line and a bucket (see
    `Buckets`).

    Attributes:
        bucket: The number of the bucket of each row.
        line: The number of the line of each row: equal numbers mean the same line.
        values: An array of shape (ranks, rows).
        buckets: The number of buckets.
    """

    bucket: I64
    line: I64
    values: _Reals
    buckets: int

    def of(self, ranks: Sequence[int]) -> ByLine:
        """Returns what some of the ranks have. `ranks` has their positions in `values`."""
        return replace(self, values=self.values[list(ranks)])

    @property
    def of_ranks(self) -> _Reals:
        """The sums over all lines: an array of shape (ranks, buckets)."""
        return np.stack([np.bincount(self.bucket, row, self.buckets) for row in self.values]).astype(np.float64)

    @property
    def usual(self) -> _Reals:
        """The sums of each line's lower median over the ranks: an array with one value for each bucket."""
        return np.bincount(self.bucket, lower_median(self.values), self.buckets).astype(np.float64)


def lower_median(values: _Reals | I64) -> _Reals:
    """Returns the medians over the first axis; of an even number of values the lower of the middle two, because their
    mean would keep half of what one of two ranks is late by."""
    middle: _Reals = np.sort(values.astype(np.float64), axis=0)[(len(values) - 1) // 2]
    return middle


def idle_of(ranks: Sequence[Rank], steps: int, stretches: Stretches) -> ByLine:
    """Returns how long each line of these ranks sleeps or loads data, in ns."""
    return _by_line(ranks, steps, stretches, _IDLE, "time")


def _by_line(ranks: Sequence[Rank], steps: int, stretches: Stretches, kinds: Sequence[Cost], column: str) -> ByLine:
    numbers: dict[tuple[object, ...], int] = {}
    buckets = stretches.until(steps)
    keys, values, owners = [], [], []
    for index, rank in enumerate(ranks):
        costs = rank.costs
        rows = np.flatnonzero(is_one_of(costs.kind, kinds) & (costs.step < steps))
        rows = rows[costs.stretch[rows] < stretches.counts[costs.step[rows]]]
        place = costs.place[rows]
        line = np.array(
            [
                numbers.setdefault(rank.summary.places[each].key if each >= 0 else (), len(numbers))
                for each in place.tolist()
            ],
            dtype=np.int64,
        )
        keys.append(line * buckets + stretches.numbers(costs.step[rows], costs.stretch[rows]))
        values.append(getattr(costs, column)[rows])
        owners.append(np.full(len(rows), index))
    found, which = np.unique(np.concatenate(keys), return_inverse=True)
    table = np.zeros((len(ranks), len(found)))
    np.add.at(table, (np.concatenate(owners), which.reshape(-1)), np.concatenate(values))
    return ByLine(found % buckets, found // buckets, table, buckets)


def extra_waits(ranks: Sequence[Rank], steps: int, stretches: Stretches) -> I64:
    """Returns how often each rank waits for the device at lines at which it waits more often in a step than is usual
    among these ranks: an array of shape (ranks, buckets)."""
    waits = _by_line(ranks, steps, stretches, (Cost.WAIT,), "count")
    lines = int(waits.line.max(initial=-1)) + 1
    total = np.stack([np.bincount(waits.line, row, lines) for row in waits.values]).astype(np.float64)
    more = total > lower_median(total)
    extra = np.where(more[:, waits.line], waits.values, 0) if lines else waits.values
    return replace(waits, values=extra).of_ranks.astype(np.int64)


def waits_of(program: Program) -> int:
    """Returns how often the host of a program waits for the device in its steps."""
    steps = slice(int(program.step_starts[0]), int(program.step_ends[-1]) + 1)
    return int(is_one_of(program.instructions.code[steps], _WAITS).sum())


def without_waits(program: Program, of_row: I32 | I64, counts: I64) -> Program:
    """Returns a program in which the host no longer waits for the device so often.

    Args:
        program: A rank's program.
        of_row: For each instruction, the number of its bucket. -1 if it is outside of all steps.
        counts: For each bucket, how many of its waits are left out: the first ones.
    """
    do = program.instructions
    rows = np.flatnonzero(is_one_of(do.code, _WAITS) & (of_row >= 0))
    bucket = of_row[rows]
    order = np.argsort(bucket, kind="stable")
    begins = np.searchsorted(bucket[order], bucket[order])
    nth = np.empty(len(rows), dtype=np.int64)
    nth[order] = np.arange(len(rows)) - begins
    code = do.code.copy()
    code[rows[nth < counts[bucket]]] = Code.CALL
    return replace(program, instructions=replace(do, code=code))
