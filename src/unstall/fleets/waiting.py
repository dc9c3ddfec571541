"""Splits the time that ranks spend in collectives into waiting and transfer, on the job's common clock. Finds for which
rank the others waited."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.fleets.clocks import Clocks, align
from unstall.fleets.join import SEND_RECEIVE, Joined
from unstall.fleets.summarise import KINDS
from unstall.fleets.summary import Rank
from unstall.locate.collectives import Kind
from unstall.timeline.columns import I64, Bool
from unstall.timeline.grouping import groups, median

_Reals = NDArray[np.float64]
_SYMMETRIC = tuple(
    KINDS.index(kind)
    for kind in (Kind.ALL_REDUCE, Kind.FUSED_ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.BARRIER)
)

_ROOTED = tuple(KINDS.index(kind) for kind in (Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER))
_EVEN = 0.1  # of a symmetric collective: ranks of one clock end it within this time
_SIGMAS, _FEWEST = 6, 4  # what chance explains, and of how many collectives it is known
_TO_SIGMA = 1.4826  # from the median absolute deviation, for normal errors
_WAITED = 2  # times as long as the member that came last: the others waited for it


class Waiting(msgspec.Struct, frozen=True, eq=False):
    """The times of a job's collectives on the job's common clock, in ns. A member is one rank's part of a collective.
    Unless an attribute says otherwise, its array has one value for each member, in the order of `Joined`.

    Attributes:
        operation: The number of the member's collective.
        start: When the member arrived: when its op began on the device.
        end: When the member's op ended.
        alone: True if the member waits for nobody: it sends a message for which the receiver has room, or ended its
            part of a broadcast, reduce, gather or scatter before the last member came.
        last: For each collective, when its last member arrived.
        waits: How long the member waited for the last member. 0 if it waits for nobody.
        transfer: The time from the arrival of the last member to the member's end. If the member waits for nobody, the
            time from its own arrival.
        step: The index of the step that launched the member's op, or -1.
        blamed: For each collective, the index of the rank that arrived last. -1 if no other rank waited for it, or if
            the clocks cannot tell.
        blame: For each collective, for how long a member waited for the last member, and for no other member before.
        clocks: The clocks of the job, after they have been aligned.
        clock_of: For each rank, the index of its clock.
        zero: For each rank, the local time 0, in ns after the earliest local time 0 of all ranks.
        machines: True if all ranks of a machine share a clock. False if the machines are not known: each rank then has
            its own clock. False, too, if ranks of a machine have clocks of their own.
        apart: The machines whose ranks have clocks of their own, and by how much these differ, in ns. Such are several
            machines of one name, for example "localhost".
        uneven: Which operations were also used to align the clocks, because symmetric collectives do not connect all of
            them: "sends and receives", which end less evenly, or "collectives with a root". "" if none were.
    """

    operation: I64
    start: I64
    end: I64
    alone: Bool
    last: I64
    waits: I64
    transfer: I64
    step: I64
    blamed: I64
    blame: I64
    clocks: Clocks
    clock_of: I64
    zero: I64
    machines: bool
    apart: tuple[tuple[str, int], ...]
    uneven: str


def waiting(ranks: Sequence[Rank], joined: Joined) -> Waiting:
    """Aligns the clocks of the ranks. Then splits the time that each rank spends in each collective into waiting and
    transfer.

    Args:
        ranks: The ranks of the job.
        joined: The collectives in which several of these ranks take part.
    """
    names = [rank.summary.machine for rank in ranks]
    base = min((rank.summary.zero_ns for rank in ranks), default=0)
    zero = np.array([rank.summary.zero_ns - base for rank in ranks], dtype=np.int64)
    operation = joined.operation
    start = joined.of_members(ranks, "started") + zero[joined.rank]
    end = joined.of_members(ranks, "ended") + zero[joined.rank]
    step = joined.of_members(ranks, "step")
    clock_of, between = _clocks(names, joined, start, end)
    clock = clock_of[joined.rank]
    clocks, uneven = _fitted(joined.kind[operation], operation, clock, (start, end), clock_of)
    begins = np.array([int(rank.step_start[0]) for rank in ranks], dtype=np.int64)
    clocks = clocks.begun_together(clock_of, begins + zero)
    start, end = clocks.aligned(clock, start), clocks.aligned(clock, end)
    aligned = (clocks, clock_of, zero, not (between or None in names), between, uneven)
    if not len(joined):
        none = np.zeros(0, dtype=np.int64)
        return Waiting(operation, start, end, none > 0, none, none, none, step, none, none, *aligned)
    first = joined.first[:-1]
    last = np.maximum.reduceat(start, first)
    latest = _latest(start, operation, first)
    alone = _alone(ranks, joined, (end, last[operation]), clocks.known_residual_ns)
    others = alone | (np.arange(len(start)) == latest[operation])
    second = np.maximum.reduceat(np.where(others, np.iinfo(np.int64).min, start), first)
    # A transfer cannot begin after a member has ended. If it seems to, the clocks are off by the difference.
    until = np.minimum(last, np.minimum.reduceat(np.where(alone, np.iinfo(np.int64).max, end), first))
    begun = np.where(alone, start, np.maximum(start, until[operation]))
    waits, transfer = begun - start, np.maximum(end - begun, 0)
    blame = np.where(np.logical_and.reduceat(others, first), 0, np.maximum(last - second, 0))
    apart = np.maximum.reduceat(clock, first) != np.minimum.reduceat(clock, first)
    part = clocks.part[clock]
    unknown = np.maximum.reduceat(part, first) != np.minimum.reduceat(part, first)
    sure = ~apart | (~unknown & (blame > (clocks.residual_ns or 0.0)))
    blamed = np.where(sure & (blame > 0), joined.rank[latest], -1)
    return Waiting(operation, start, end, alone, last, waits, transfer, step, blamed, blame, *aligned)


def _alone(ranks: Sequence[Rank], joined: Joined, times: tuple[I64, I64], residual_ns: float) -> Bool:
    """Returns a mask of the members that wait for nobody: sends of messages for which the receiver has room, and
    members that ended before the last one came, in collectives with a root. For example, the root of a broadcast needs
    nothing of the others.

    If a send ended before its receiver had begun, there was room for its message. Then there is for smaller ones, too.
    The recording cannot tell so of each of them, as a receiver may come first.

    Args:
        ranks: The ranks.
        joined: Their collectives.
        times: For each member, when it ended, and when the last member of its collective arrived, in ns.
        residual_ns: How far the clocks may be apart.
    """
    end, last = times
    own = np.array([rank.number for rank in ranks], dtype=np.int64)[joined.rank]
    source, sent = joined.of_members(ranks, "source"), joined.of_members(ranks, "sent")
    receives = (source != own) & (source >= 0)
    kind = joined.kind[joined.operation]
    sends = (kind == SEND_RECEIVE) & ~receives
    early = end + residual_ns < last
    fits = (source == own) & (sent >= 0) & (sent <= sent[sends & early].max(initial=-1))
    alone: Bool = (early & (sends | np.isin(kind, _ROOTED))) | (sends & fits)
    return alone


def _fitted(kind: I64, operation: I64, clock: I64, times: tuple[I64, I64], clock_of: I64) -> tuple[Clocks, str]:
    """Returns `(clocks, uneven)`: the aligned clocks, and which operations other than symmetric collectives were used
    to align them (see `Waiting.uneven`).

    Symmetric collectives, such as an all-reduce, are enough if they connect all clocks. Otherwise more operations are
    used, if they connect more clocks. For example, the stages of a pipeline often share only sends and receives. Of
    these, the operations in which a member waited are used first, because its members ended together. A short message
    may be sent long before it is received. Of a collective with a root, such as a broadcast, only the members that
    waited are used, as the others may have gone on before the last one came.

    Args:
        kind: For each member (one rank's part of an operation), the kind of its operation.
        operation: For each member, the number of its operation, in ascending order.
        clock: For each member, the index of its clock.
        times: For each member, its start and its end on this clock, in ns.
        clock_of: For each rank, the index of its clock.
    """
    count = int(clock_of.max(initial=-1)) + 1
    start, end = times

    def aligned(chosen: Bool) -> Clocks:
        return align(operation[chosen], clock[chosen], end[chosen], count)

    chosen = np.isin(kind, _SYMMETRIC)
    best, uneven = aligned(chosen), ""
    if count < 2 or not best.part.any() or not len(kind):
        return best, ""
    length = end - start
    first = np.flatnonzero(np.diff(operation, prepend=-1))
    waited = length >= _WAITED * np.maximum(np.minimum.reduceat(length, first), 1)[operation]
    any_waited = np.logical_or.reduceat(waited, first)[operation]
    rooted = np.isin(kind, _ROOTED)
    sends, roots = "sends and receives", "collectives with a root"
    for more, name in ((any_waited & ~rooted, sends), (~rooted, sends), (waited & rooted, roots)):
        found = aligned(chosen | more)
        if found.part.max() < best.part.max():
            best, uneven, chosen = found, name, chosen | more
    return best, uneven


def _latest(start: I64, operation: I64, first: I64) -> I64:
    """Returns, for each collective, the member that starts last. A member is one rank's part of a collective.

    Args:
        start: For each member, its start in ns.
        operation: For each member, the number of its collective, in ascending order.
        first: For each collective, its first member.
    """
    order = np.lexsort((start, operation))
    latest: I64 = order[np.append(first[1:], len(start)) - 1]
    return latest


def _clocks(
    names: Sequence[str | None], joined: Joined, start: I64, end: I64
) -> tuple[I64, tuple[tuple[str, int], ...]]:
    """Returns `(clock_of, apart)`. `clock_of` has the index of each rank's clock. The ranks of a machine share a clock,
    if the machines of all ranks are known and the ends of symmetric collectives allow it. `apart` is as in `Waiting`.

    Args:
        names: The name of each rank's machine. None if it is unknown.
        joined: The collectives in which several ranks take part.
        start: For each member, its start on its rank's clock, in ns.
        end: For each member, its end on its rank's clock, in ns.
    """
    known = [name for name in names if name is not None]
    if len(known) < len(names):
        return np.arange(len(names)), ()
    distinct = list(dict.fromkeys(known))
    numbers = {name: number for number, name in enumerate(distinct)}
    machine = np.array([numbers[name] for name in known], dtype=np.int64)
    between = _between_ranks(machine, joined, start, end)
    apart = {number: round(by) for number, by in enumerate(between.tolist()) if by > 0}
    own = np.isin(machine, list(apart))
    clock_of = np.unique(np.where(own, len(distinct) + np.arange(len(names)), machine), return_inverse=True)[1]
    return clock_of, tuple((distinct[number], by) for number, by in apart.items())


def _between_ranks(machine: I64, joined: Joined, start: I64, end: I64) -> _Reals:
    """Returns how far apart the clocks of each machine's ranks are, in ns. 0 if they may be one clock: if the ranks end
    symmetric collectives together, but for chance."""
    apart = np.zeros(int(machine.max(initial=-1)) + 1)
    kept = np.flatnonzero(np.isin(joined.kind, _SYMMETRIC)[joined.operation])
    _, cell = np.unique(joined.operation[kept] * len(apart) + machine[joined.rank[kept]], return_inverse=True)
    several = np.bincount(cell, minlength=1)[cell] > 1
    kept, cell = kept[several], np.unique(cell[several], return_inverse=True)[1]
    if not len(kept):
        return apart
    # Clocks may be years apart, so the first member's end is subtracted before the mean is taken.
    _, first = np.unique(cell, return_index=True)
    rest = (end[kept] - end[kept[first]][cell]).astype(np.float64)
    rest -= (np.bincount(cell, rest) / np.bincount(cell))[cell]
    usual = np.full(len(machine), np.nan)
    for rank, mine in groups(joined.rank[kept]):
        if len(mine) >= _FEWEST:
            usual[rank] = median(rest[mine])
    left = np.abs(rest - usual[joined.rank[kept]])
    left = left[np.isfinite(left)]
    if not len(left):
        return apart
    transfer = np.minimum.reduceat(end - start, joined.first[:-1])[joined.operation[kept[first]]]
    least = max(_SIGMAS * _TO_SIGMA * float(median(left)), _EVEN * float(median(transfer)))
    for number, mine in groups(machine):
        found = usual[mine][np.isfinite(usual[mine])]
        apart[number] = np.ptp(found) if len(found) else 0
    return np.where(apart > least, apart, 0)


def covered(start: I64, end: I64, rank: I64, step: I64, shape: tuple[int, int]) -> I64:
    """Returns an array of shape (ranks, steps): for how long at least one span of the rank and step lasts, in ns. Spans
    of several streams may overlap. Times at which they overlap count once.

    Args:
        start: The start of each span, in ns.
        end: The end of each span, in ns.
        rank: The index of each span's rank.
        step: The index of each span's step. Spans outside of the steps are left out.
        shape: The number of ranks and the number of steps.
    """
    inside = np.flatnonzero((step >= 0) & (step < shape[1]) & (end > start))
    inside = inside[np.lexsort((start[inside], step[inside], rank[inside]))]
    cell = rank[inside] * shape[1] + step[inside]
    begin, until = start[inside], end[inside]
    # Clocks may be years apart, so each cell has its own zero. All spans of a later cell then begin after those of
    # earlier cells, so one running maximum serves all cells.
    _, first, nth = np.unique(cell, return_index=True, return_inverse=True)
    zero = begin[first][nth]
    begin, until = begin - zero, until - zero
    far = int(until.max(initial=0)) + 1
    begin, until = begin + nth * far, until + nth * far
    reach = np.maximum.accumulate(until)
    fresh = np.maximum(until - np.maximum(begin, np.append(begin[:1], reach[:-1])[: len(begin)]), 0)
    if len(fresh):
        fresh[0] = until[0] - begin[0]
    return by_rank_and_step(fresh, rank[inside], step[inside], shape)


def by_rank_and_step(values: I64, rank: I64, step: I64, shape: tuple[int, int]) -> I64:
    """Adds up values by rank and step. Returns an array of shape (ranks, steps).

    Args:
        values: The values.
        rank: For each value, the index of its rank.
        step: For each value, the index of its step. Values outside of the steps are left out.
        shape: The number of ranks and the number of steps.
    """
    inside = (step >= 0) & (step < shape[1])
    flat = rank[inside] * shape[1] + step[inside]
    total = np.bincount(flat, values[inside].astype(np.float64), shape[0] * shape[1])
    return np.rint(total).astype(np.int64).reshape(shape)
