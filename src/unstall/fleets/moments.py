"""The collectives in which the ranks of a job waited longest, and what each rank did before."""

from __future__ import annotations

import numpy as np

from unstall.fleets.assess import operation_step
from unstall.fleets.job import Job
from unstall.fleets.join import name_of
from unstall.fleets.result import Member, Moment
from unstall.fleets.summarise import KINDS
from unstall.result import Where

_MOST_MOMENTS = 12


def moments_of(job: Job) -> tuple[Moment, ...]:
    """Returns up to 12 collectives in which the ranks waited longest, the longest first.

    Each step of a program repeats the same collectives. Of collectives with the same group and the same position in a
    step, only the one with the longest wait is returned.
    """
    joined, waiting = job.joined, job.waiting
    if not len(joined):
        return ()
    waited = np.add.reduceat(waiting.waits, joined.first[:-1])
    step = operation_step(job)
    position = joined.of_members(job.ranks, "position")[joined.first[:-1]]
    taken: set[tuple[int, int]] = set()
    chosen: list[int] = []
    for operation in np.argsort(-waited, kind="stable").tolist():
        key = (int(joined.group[operation]), int(position[operation]))
        if key in taken or step[operation] < 0 or waited[operation] <= 0:
            continue
        taken.add(key)
        chosen.append(operation)
        if len(chosen) == _MOST_MOMENTS:
            break
    return tuple(_moment(job, each, int(waited[each]), int(step[each]), int(position[each])) for each in chosen)


def _moment(job: Job, operation: int, waited: int, step: int, position: int) -> Moment:
    joined, waiting = job.joined, job.waiting
    rows = np.arange(joined.first[operation], joined.first[operation + 1])
    free = [_free_since(job, int(row)) for row in rows]
    begin = min([*free, *(int(each) for each in waiting.start[rows])])
    order = sorted(range(len(rows)), key=lambda at: int(waiting.start[rows[at]]))
    blamed = int(waiting.blamed[operation])
    sent = max(int(job.ranks[joined.rank[row]].calls.sent[joined.row[row]]) for row in rows)
    return Moment(
        kind=KINDS[int(joined.kind[operation])].value,
        group=name_of(joined.groups[int(joined.group[operation])]),
        step=step + 1,
        number=position + 1,
        sent_bytes=sent if sent >= 0 else None,
        waited_ns=waited,
        for_rank=job.ranks[blamed].number if blamed >= 0 else None,
        members=tuple(
            Member(
                rank=job.ranks[int(joined.rank[rows[at]])].number,
                free=free[at] - begin,
                start=int(waiting.start[rows[at]]) - begin,
                end=int(waiting.end[rows[at]]) - begin,
                doing=_doing(job, int(rows[at])),
            )
            for at in order
        ),
    )


def _free_since(job: Job, member: int) -> int:
    """Returns when a rank's previous collective ended, in ns on the job's common clock. If the rank has no earlier
    collective in this step, returns when the step began.

    `member` is the rank's part of the collective, as a row of `job.joined`.
    """
    index = int(job.joined.rank[member])
    rank, row = job.ranks[index], int(job.joined.row[member])
    calls = rank.calls
    started = int(calls.started[row])
    earlier = calls.ended[calls.ended <= started]
    step = int(calls.step[row])
    begin = int(rank.step_start[step]) if step >= 0 else started
    local = max(int(earlier.max(initial=begin)), min(begin, started))
    waiting = job.waiting
    clock = waiting.clock_of[index : index + 1]
    return int(waiting.clocks.aligned(clock, np.array([min(local, started) + int(waiting.zero[index])]))[0])


def _doing(job: Job, member: int) -> Where | None:
    """Returns the source line at which a rank spent most of the time between its previous collective and this one.
    Returns None if no line is known.

    `member` is the rank's part of the collective, as a row of `job.joined`.
    """
    rank = job.ranks[int(job.joined.rank[member])]
    row = int(job.joined.row[member])
    costs, calls = rank.costs, rank.calls
    inside = (costs.step == calls.step[row]) & (costs.stretch == calls.position[row]) & (costs.place >= 0)
    if not inside.any():
        return None
    total = np.bincount(costs.place[inside], costs.time[inside], len(rank.summary.places))
    return rank.summary.places[int(total.argmax())]
