"""What is known of the ranks that have no trace, and of operations that were matched with no other rank's."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.fleets.job import Job
from unstall.fleets.join import SEND_RECEIVE
from unstall.fleets.summary import Group, Rank
from unstall.fleets.waiting import covered
from unstall.timeline.columns import I64, Bool
from unstall.timeline.grouping import groups, unique
from unstall.timeline.limits import MOST_RANKS

_Reals = NDArray[np.float64]


def sends_and_receives(job: Job) -> tuple[_Reals, _Reals]:
    """Returns `(all, unmatched)`. For each rank of a job, these are the times in which its device does nothing but
    sends and receives: all of them, and those that were matched with no other rank's. They are in ns per step.

    Unmatched ones are replayed as recorded, with what the rank waits in them.
    """
    every, unmatched = np.zeros(len(job.ranks)), np.zeros(len(job.ranks))
    for index, rank in enumerate(job.ranks):
        paired = rank.calls.kind == SEND_RECEIVE
        alone = paired & ~job.matched[index]
        every[index], unmatched[index] = _alone_in(job, rank, paired), _alone_in(job, rank, alone)
    return every, unmatched


class Absent(msgspec.Struct, frozen=True):
    """The ranks that have no trace and take part in operations of those that have one.

    Attributes:
        ranks: The numbers of these ranks.
        spent_ns: The time in which the device of a rank does nothing but operations with them, from the arrival of the
            last member that has a trace, in ns per step: the most of all ranks. How long it waits in them is unknown.
        unmatched_ns: The same, but only of operations in which no other rank that has a trace takes part.
    """

    ranks: tuple[int, ...]
    spent_ns: int
    unmatched_ns: int


def absent_of(job: Job) -> Absent:
    """Returns which ranks have no trace, and how long the others spend in operations with them.

    If a trace does not tell the ranks of a group, these may be any that have no trace.
    """
    present = {rank.number for rank in job.ranks}
    missing = missing_ranks(job)
    absent: set[int] = set()
    away_of: dict[Group, list[int]] = {}
    spent, unmatched = [0.0], [0.0]
    joined, of_rank = job.joined, dict(groups(job.joined.rank))
    of_operation = np.diff(joined.first)[joined.operation]
    for index, rank in enumerate(job.ranks):
        calls, chosen = rank.calls, np.zeros(len(rank.calls), dtype=np.bool_)
        here = of_rank.get(index, joined.row[:0])
        members, waits = np.zeros((2, len(calls)), dtype=np.int64)
        members[joined.row[here]], waits[joined.row[here]] = of_operation[here], job.waiting.waits[here]
        sent = (calls.source >= 0) & (calls.target >= 0)
        for number in unique(calls.group).tolist():
            group = rank.summary.groups[number]
            if group not in away_of:
                away_of[group] = sorted(set(group.ranks) - present) if group.ranks else list(missing)
            if not (away := away_of[group]):
                continue
            with_them = ~sent | np.isin(calls.source, away) | np.isin(calls.target, away)
            with_them &= (calls.group == number) & ((group.size < 0) | (members < group.size))
            if with_them.any():
                chosen |= with_them
                absent.update(away)
        spent.append(_alone_in(job, rank, chosen, waits))
        unmatched.append(_alone_in(job, rank, chosen & ~job.matched[index], waits))
    return Absent(tuple(sorted(absent)), round(max(spent)), round(max(unmatched)))


def missing_ranks(job: Job) -> tuple[int, ...]:
    """Returns the numbers of the ranks of the job that have no trace, as far as the traces tell them."""
    world = world_size(job)
    known = {number for group in job.joined.groups for number in group.ranks}
    expected = set(range(world)) if world is not None and world < MOST_RANKS else known
    return tuple(sorted(expected - {rank.number for rank in job.ranks}))


def world_size(job: Job) -> int | None:
    """Returns the number of ranks of the job. None if no trace says it."""
    return next((rank.summary.world_size for rank in job.ranks if rank.summary.world_size is not None), None)


def _alone_in(job: Job, rank: Rank, chosen: Bool, after: I64 | int = 0) -> float:
    """Returns the time in which the device of a rank does nothing but the collectives in the mask `chosen`, in ns per
    step. The first `after` ns of each collective are left out."""
    if not chosen.any():
        return 0.0
    calls = rank.calls
    step, ends = calls.step - job.settled.start, np.maximum(calls.ended - calls.beside, calls.started)
    inside = np.where(chosen, step, -1)
    return float(covered(calls.started + after, ends, np.zeros_like(step), inside, (1, len(job.settled))).mean())
