"""Matches the steps of the ranks, because their recordings may begin at different steps. Steps of two ranks are the
same step if they contain the same collectives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from unstall.figures import counted
from unstall.fleets.join import SEND_RECEIVE, Joined
from unstall.fleets.summary import Calls, Costs, Rank
from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups, median


def paired_steps(ranks: Sequence[Rank], joined: Joined) -> tuple[list[Rank], list[str]]:
    """Returns `(ranks, notes)`. `ranks` are the given ranks without the steps that come before the first step that all
    ranks have. `notes` has a sentence for each rank whose recording began later than that of the first.

    Args:
        ranks: The ranks of the job.
        joined: The collectives in which several ranks take part. Only those that were joined by sequence number say
            which steps are the same.
    """
    later = _later(ranks, joined)
    first = int(later.max(initial=0))
    if not later.any():
        return list(ranks), []
    notes = [
        f"the recording of rank {rank.number} began {counted(int(by), 'step')} later than the first: earlier steps of "
        "the others are left out"
        for rank, by in zip(ranks, later, strict=True)
        if by
    ]
    return [_from(rank, first - int(by)) for rank, by in zip(ranks, later, strict=True)], notes


def _later(ranks: Sequence[Rank], joined: Joined) -> I64:
    """Returns, for each rank, by how many steps its recording began later than that of the rank whose recording began
    first."""
    step, sequence = (joined.of_members(ranks, name) for name in ("step", "sequence"))
    # Operations that were joined by their order in a step have members of equal steps, whatever the steps are.
    numbered = np.bincount(joined.operation[sequence < 0], minlength=len(joined)) == 0
    numbered &= joined.kind != SEND_RECEIVE
    known = np.flatnonzero((step >= 0) & numbered[joined.operation])
    step, operation, rank = step[known], joined.operation[known], joined.rank[known]
    of_rank = list(groups(rank))
    begun = np.zeros(len(ranks), dtype=np.int64)
    # An operation's step in the rank that began first is the largest of its members'.
    for _ in range(len(ranks)):
        number = step + begun[rank]
        most = np.full(len(joined), -1, dtype=np.int64)
        np.maximum.at(most, operation, number)
        late = most[operation] - number
        moved = False
        for index, mine in of_rank:
            by = int(median(late[mine]))
            if by:
                begun[index] += by
                moved = True
        if not moved:
            break
    return begun - int(begun.min(initial=0))


def _from(rank: Rank, first: int) -> Rank:
    """Returns a rank without its first `first` steps."""
    if first <= 0 or first >= rank.steps:
        return rank
    calls, costs, program = rank.calls, rank.costs, rank.program
    step = np.where(calls.step >= first, calls.step - first, -1)
    kept = costs.step >= first
    columns = {name: getattr(costs, name)[kept] for name in Costs.__struct_fields__}
    moved: Calls = replace(calls, step=step, position=np.where(step >= 0, calls.position, -1))
    return replace(
        rank,
        calls=moved,
        costs=Costs(**{**columns, "step": columns["step"] - first}),
        program=replace(program, step_starts=program.step_starts[first:], step_ends=program.step_ends[first:]),
        step_start=rank.step_start[first:],
        step_end=rank.step_end[first:],
    )
