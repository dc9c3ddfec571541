"""Splits the time in collectives into transfer and waiting, on the job's common clock. Says who is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unstall.fleets.clocks import Clocks, align
from unstall.fleets.join import Joined
from unstall.fleets.summarise import KINDS
from unstall.fleets.summary import Rank
from unstall.locate.collectives import Kind
from unstall.timeline.columns import I64, Bool

_SYMMETRIC = tuple(
    KINDS.index(kind)
    for kind in (Kind.ALL_REDUCE, Kind.FUSED_ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BARRIER)
)


@dataclass(frozen=True, eq=False, slots=True)
class Waiting:
    """The members of all joint operations on one clock, in ns. The columns have a row for each member of `Joined`."""

    operation: I64
    start: I64  # when the member arrived
    end: I64
    last: I64  # when the last member arrived
    waits: I64  # how long it waited for the last member
    transfer: I64  # from the last arrival to its own end
    step: I64
    blamed: I64  # by operation: the rank that arrived last, as an index; -1 if the clocks cannot tell
    blame: I64  # by operation: how much earlier it would have begun if that rank had arrived with the rank before it
    clocks: Clocks
    clock_of: I64  # by rank
    zero: I64  # by rank: the local time 0, in ns, from the earliest of all
    machines: bool  # whether a clock is a machine's; else each rank counts as a machine
    by_all: bool  # whether sends and receives, which end less evenly, were also used to compare the clocks


def waiting(ranks: Sequence[Rank], joined: Joined) -> Waiting:
    """Aligns the ranks' clocks, and splits each member's time in each operation."""
    clock_of, machines = _clocks(ranks)
    base = min((rank.summary.zero_ns for rank in ranks), default=0)
    zero = np.array([rank.summary.zero_ns - base for rank in ranks], dtype=np.int64)
    operation = joined.operation
    start = joined.of_members(ranks, "started") + zero[joined.rank]
    end = joined.of_members(ranks, "ended") + zero[joined.rank]
    step = joined.of_members(ranks, "step")
    clock = clock_of[joined.rank]
    clocks, by_all = _fitted(np.isin(joined.kind, _SYMMETRIC)[operation], operation, clock, end, clock_of)
    start, end = clocks.aligned(clock, start), clocks.aligned(clock, end)
    if not len(joined):
        none = np.zeros(0, dtype=np.int64)
        return Waiting(
            operation, start, end, none, none, none, step, none, none, clocks, clock_of, zero, machines, by_all
        )
    first = joined.first[:-1]
    last = np.maximum.reduceat(start, first)
    latest = _latest(start, operation, first)
    others = np.where(np.arange(len(start)) == latest[operation], np.iinfo(np.int64).min, start)
    second = np.maximum.reduceat(others, first)
    # A transfer cannot begin after a member has ended. If it seems to, the clocks are off by the difference.
    until = np.minimum(last, np.minimum.reduceat(end, first))
    waits = np.clip(until[operation] - start, 0, None)
    transfer = np.maximum(end - np.maximum(start, until[operation]), 0)
    blame = np.maximum(last - second, 0)
    apart = np.maximum.reduceat(clock, first) != np.minimum.reduceat(clock, first)
    residual = clocks.residual_ns or 0.0
    sure = ~apart | (blame > residual)
    blamed = np.where(sure & (blame > 0), joined.rank[latest], -1)
    return Waiting(
        operation, start, end, last, waits, transfer, step, blamed, blame, clocks, clock_of, zero, machines, by_all
    )


def _fitted(symmetric: Bool, operation: I64, clock: I64, end: I64, clock_of: I64) -> tuple[Clocks, bool]:
    """Returns the fitted clocks, and whether operations other than symmetric ones were needed to connect them.

    The stages of a pipeline have sends and receives in common, and often nothing else.
    """
    count = int(clock_of.max(initial=-1)) + 1
    clocks = align(operation[symmetric], clock[symmetric], end[symmetric], count)
    if count < 2 or not clocks.part.any():
        return clocks, False
    every = align(operation, clock, end, count)
    return (every, True) if every.part.max() < clocks.part.max() else (clocks, False)


def _latest(start: I64, operation: I64, first: I64) -> I64:
    """Returns, for each operation, the member that starts last."""
    order = np.lexsort((start, operation))
    latest: I64 = order[np.append(first[1:], len(start)) - 1]
    return latest


def _clocks(ranks: Sequence[Rank]) -> tuple[I64, bool]:
    """Returns which clock each rank has, and whether the machines are known."""
    names = [rank.summary.machine for rank in ranks]
    if any(name is None for name in names):
        return np.arange(len(ranks)), False
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64), True


def covered(start: I64, end: I64, rank: I64, step: I64, shape: tuple[int, int]) -> I64:
    """Returns how long at least one of the spans lasts: (ranks, steps), in ns. Spans of several streams may overlap."""
    inside = np.flatnonzero((step >= 0) & (step < shape[1]) & (end > start))
    inside = inside[np.lexsort((start[inside], step[inside], rank[inside]))]
    cell = rank[inside] * shape[1] + step[inside]
    begin, until = start[inside], end[inside]
    # All spans of a later cell begin after those of earlier cells, so one running maximum serves all cells.
    far = (int(until.max(initial=0)) - int(begin.min(initial=0)) + 1) if len(inside) else 1
    _, nth = np.unique(cell, return_inverse=True)
    begin, until = begin + nth * far, until + nth * far
    reach = np.maximum.accumulate(until)
    fresh = np.maximum(until - np.maximum(begin, np.append(begin[:1], reach[:-1])[: len(begin)]), 0)
    if len(fresh):
        fresh[0] = until[0] - begin[0]
    return by_rank_and_step(fresh, rank[inside], step[inside], shape)


def by_rank_and_step(values: I64, rank: I64, step: I64, shape: tuple[int, int]) -> I64:
    """Adds up values of members: (ranks, steps). Members outside of steps are left out."""
    inside = (step >= 0) & (step < shape[1])
    flat = rank[inside] * shape[1] + step[inside]
    total = np.bincount(flat, values[inside].astype(np.float64), shape[0] * shape[1])
    return np.rint(total).astype(np.int64).reshape(shape)
