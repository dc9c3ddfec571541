"""Turns a `Job` (all ranks of a training job) into the parts of its report: stragglers and their causes, communication,
pipeline stages, costs by source line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.fleets.edits import balance_stages, no_stragglers
from unstall.fleets.job import Job
from unstall.fleets.result import MOST_LINES, ClockFit, FleetLine, GroupUse, RankRow, Stage, Straggler
from unstall.fleets.roles import EXCHANGES, PIPELINE
from unstall.fleets.student import outlying_steps, slower_than_peers
from unstall.fleets.summary import Cost
from unstall.fleets.waiting import by_rank_and_step, covered
from unstall.fleets.why import Lines, causes_of, lines_of
from unstall.result import Where
from unstall.timeline.columns import I64
from unstall.timeline.grouping import median, unique

_Reals = NDArray[np.float64]
_WORTH = 0.01  # of a step: a rank that costs the job less is no straggler
_MOST_CANDIDATES = 8
_COLUMNS = ((Cost.KERNEL, Cost.COPY), (Cost.HOST, Cost.ASLEEP, Cost.LOADING), (Cost.WAIT,))  # of a line's costs


class Assessed(msgspec.Struct, frozen=True, eq=False):
    """Step times of a job, as recorded and in replays, and the job's stragglers. Times are the mean length of a step,
    in ns.

    Attributes:
        recorded_ns: The step time according to the traces.
        error_ns: The error of the replay: the absolute difference between `recorded_ns` and the mean length of the same
            steps in the replay.
        replayed_ns: The step time in a replay of all ranks without changes, if the job goes on (`Times.step_ns`).
        ideal_ns: The step time in a replay without stragglers (the edit `no-stragglers`).
        balanced_ns: The step time in a replay in which all pipeline stages compute for the same time. None if there are
            fewer than two stages.
        silent_ns: The step time in a replay in which transfers between ranks take no time.
        stragglers: The ranks that make the others wait. The rank whose delay costs the job most is first.
        late_too: The numbers of further ranks that are late, too many to judge each. The gain of the first straggler is
            that of mending them as well.
        lines: What each line costs on each rank.
    """

    recorded_ns: float
    error_ns: float
    replayed_ns: float
    ideal_ns: float
    balanced_ns: float | None
    silent_ns: float
    stragglers: tuple[Straggler, ...]
    late_too: tuple[int, ...]
    lines: Lines


def assess(job: Job) -> Assessed:
    """Replays a job and finds its stragglers.

    Returns the step time as recorded, and in replays: without changes, without stragglers, with balanced pipeline
    stages, and with transfers that take no time.
    """
    recorded = recorded_step_ns(job)
    base, error = job.times.step_ns, abs(job.times.window_ns - recorded)
    silent = job.with_programs(job.programs, replace(job.meeting, transfer=np.zeros_like(job.meeting.transfer)))
    balanced = balance_stages(job).times.step_ns if job.roles.stages > 1 else None
    lines = lines_of(job)
    return Assessed(
        recorded,
        error,
        base,
        no_stragglers(job).times.step_ns,
        balanced,
        silent.times.step_ns,
        *_stragglers(job, base, error, lines),
        lines,
    )


def recorded_steps(job: Job) -> I64:
    """Returns the length of each recorded step of a job, in ns. The array has one value for each step.

    A step of the job ends when the last rank has finished the step. At this moment, the next step begins. The first
    step begins when the first rank begins it. The times of different ranks are compared after their clocks have been
    aligned.
    """
    waiting, steps = job.waiting, job.steps
    clock, zero = waiting.clock_of, waiting.zero
    ends = np.stack([rank.step_end[:steps] + zero[index] for index, rank in enumerate(job.ranks)])
    aligned = waiting.clocks.aligned(np.repeat(clock, steps), ends.reshape(-1)).reshape(ends.shape)
    lengths: I64 = np.diff(aligned.max(axis=0), prepend=int(begins(job).min()))
    return lengths


def begins(job: Job) -> I64:
    """Returns when each rank began its first step, in ns of the common clock. The array has one value for each rank."""
    waiting = job.waiting
    own = np.array([int(rank.step_start[0]) for rank in job.ranks], dtype=np.int64)
    return waiting.clocks.aligned(waiting.clock_of, own + waiting.zero)


def recorded_step_ns(job: Job) -> float:
    """Returns the mean length of the recorded steps of a job, in ns. If there are several steps, the first step is left
    out, as in the replay of the job."""
    steps = recorded_steps(job)
    return float(steps[1:].mean()) if len(steps) > 1 else float(steps.mean())


def _stragglers(
    job: Job, base_ns: float, error_ns: float, every: Lines
) -> tuple[tuple[Straggler, ...], tuple[int, ...]]:
    """Returns the ranks that are slower than their peers by more than chance explains, and whose delay alone would cost
    the job more than the error of the replay. The gain of each is that of mending it after those before it. If there
    are many, only the latest are judged, and the numbers of the others are returned, too: the first gain is that of
    mending them as well.

    Args:
        job: The job.
        base_ns: The step time in a replay of the job without changes, in ns.
        error_ns: The error of this replay, in ns.
        every: The costs of all lines by rank, in the steps that count.
    """
    own, roles = job.usual, [members for members in job.roles.members() if len(members) > 1]
    waited_for = _waited_for(job)
    # The job's replay rests on the clocks, so a gain within their disagreement is none that can be told. If it is
    # unknown, the ranks' own work is still compared without them.
    residual = job.waiting.clocks.known_residual_ns
    least = max(error_ns, residual / max(job.steps - 1, 1), _WORTH * base_ns)
    candidates: list[tuple[int, tuple[int, ...], float, float, list[int]]] = []
    for members in roles:
        always = slower_than_peers(own[members], 2 * len(roles))
        peers = [int(rank) for at, rank in enumerate(members) if at not in always]
        usual = median(own[peers], axis=0)
        for at, chance in always.items():
            late = float((own[members[at]] - usual).mean())
            candidates.append((int(members[at]), (), chance, late, peers))
        once: dict[int, list[tuple[int, float]]] = {}
        for at, step, chance in outlying_steps(own[members], 2 * len(roles), least):
            if at not in always:
                once.setdefault(at, []).append((step, chance))
        for at, late_in in once.items():
            rank, in_steps = int(members[at]), [step for step, _ in late_in]
            rest = [each for each in peers if each != rank]
            late = float((own[rank] - median(own[rest], axis=0))[in_steps].mean())
            numbers = tuple(job.settled[step] for step in in_steps)
            candidates.append((rank, numbers, min(chance for _, chance in late_in), late, rest))
    candidates.sort(key=lambda each: -each[3] * (len(each[1]) or job.steps))

    @cache
    def without(ranks: frozenset[int]) -> float:
        return no_stragglers(job, ranks).times.step_ns if ranks else base_ns

    # A rank may cost nothing while another is later still, so each is judged as if it were the only one.
    every_rank = frozenset(candidate[0] for candidate in candidates)
    steady = [candidate for candidate in candidates if not candidate[1]]
    # Of many that are late in all steps, the latest stands for all: mended alone, none of them gains anything.
    candidates = steady[:1] if len(steady) > _MOST_CANDIDATES else candidates[:_MOST_CANDIDATES]
    others = every_rank - {candidate[0] for candidate in candidates}
    none_late = without(every_rank)
    costs = [without(every_rank - {candidate[0]}) - none_late for candidate in candidates]
    order = sorted(range(len(candidates)), key=lambda at: (-costs[at], at))
    found: list[Straggler] = []
    mended, before_ns = others, base_ns
    for at in order:
        if costs[at] <= least:
            continue
        index, steps, chance, late, peers = candidates[at]
        mended |= {index}
        after_ns = without(mended)
        found.append(
            Straggler(
                rank=job.ranks[index].number,
                steps=tuple(step + 1 for step in steps),
                late_ns=round(late),
                waited_for_ns=int(waited_for[index]),
                chance=min(chance, 1.0),
                gain_ns=round(before_ns - after_ns),
                causes=causes_of(job, index, peers, lines_of(job, steps) if steps else every, late),
            )
        )
        before_ns = after_ns
    return tuple(found), tuple(sorted(job.ranks[index].number for index in others))


def _waited_for(job: Job) -> I64:
    """Returns an array with one value for each rank: the time for which the other ranks waited for this rank and for no
    other rank. The times are in ns per step."""
    waiting, first = job.waiting, job.joined.first[:-1]
    last = waiting.last if len(job.joined) else first
    begin = np.where(waiting.blamed >= 0, last - waiting.blame, last)
    return _a_step(job, begin, last, np.maximum(waiting.blamed, 0), operation_step(job))


def _a_step(job: Job, start: I64, end: I64, rank: I64, step: I64) -> I64:
    """Returns an array with one value for each rank: the mean time per step that the rank's spans cover, in ns. A time
    that several spans cover counts once.

    Args:
        job: The job.
        start: The start of each span, in ns.
        end: The end of each span, in ns.
        rank: The index of the rank that each span belongs to.
        step: The index of the step that each span belongs to. Spans outside of the job's steps are left out.
    """
    inside = np.where((step >= 0) & (step < job.steps), 0, -1)
    return np.rint(covered(start, end, rank, inside, (len(job.ranks), 1))[:, 0] / job.steps).astype(np.int64)


def operation_step(job: Job) -> I64:
    first = job.joined.first[:-1]
    return np.maximum.reduceat(job.waiting.step, first) if len(job.joined) else np.zeros(0, np.int64)


def rank_rows(job: Job) -> tuple[RankRow, ...]:
    """Returns one row for each rank of a job: its times per step, and for which ranks it waited in each step."""
    waiting, joined = job.waiting, job.joined
    shape = (len(job.ranks), job.steps)
    waits = covered(waiting.start, waiting.start + waiting.waits, joined.rank, waiting.step, shape)
    transfer = by_rank_and_step(waiting.transfer, joined.rank, waiting.step, shape)
    blames = _blames(job)
    waited_for = _waited_for(job)
    mean_waits = _a_step(job, waiting.start, waiting.start + waiting.waits, joined.rank, waiting.step)
    own = np.rint(job.own).astype(np.int64)
    rows = []
    for index, rank in enumerate(job.ranks):
        rows.append(
            RankRow(
                rank=rank.number,
                path=rank.summary.path,
                machine=rank.summary.machine,
                stage=int(job.roles.role[index]),
                step_ns=rank.summary.mean_step_ns,
                own_ns=round(float(job.usual[index].mean())),
                transfer_ns=round(float(transfer[index].mean())),
                waiting_ns=int(mean_waits[index]),
                waited_for_ns=int(waited_for[index]),
                waits_by_step=tuple(waits[index].tolist()),
                blames_by_step=tuple(job.ranks[who].number if who >= 0 else -1 for who in blames[index].tolist()),
                own_by_step=tuple(own[index].tolist()),
            )
        )
    return tuple(rows)


def _blames(job: Job) -> I64:
    """Returns an array of shape (ranks, steps): the index of the rank for which each rank waited longest in each step.
    -1 if the rank waited for no rank, or if the clocks cannot tell for which rank it waited."""
    joined, waiting = job.joined, job.waiting
    whom = np.full((len(job.ranks), job.steps), -1, dtype=np.int64)
    if not len(joined):
        return whom
    blamed = waiting.blamed[joined.operation]
    inside = (blamed >= 0) & (blamed != joined.rank) & (waiting.step >= 0) & (waiting.step < job.steps)
    inside &= waiting.waits > 0
    cell = joined.rank[inside] * job.steps + waiting.step[inside]
    pairs, which = np.unique(cell * len(job.ranks) + blamed[inside], return_inverse=True)
    total = np.bincount(which, waiting.waits[inside].astype(np.float64), len(pairs))
    for pair in np.argsort(total, kind="stable"):  # the longest comes last, and stays
        whom.reshape(-1)[pairs[pair] // len(job.ranks)] = pairs[pair] % len(job.ranks)
    return whom


def clock_fit(job: Job) -> ClockFit:
    """Returns how well the clocks of a job's machines (or ranks) agree after they have been aligned."""
    clocks = job.waiting.clocks
    residual = clocks.residual_ns
    parts = len(unique(clocks.part[unique(job.waiting.clock_of)])) if len(clocks.part) else 1
    return ClockFit(
        clocks=len(clocks.offset),
        of="machine" if job.waiting.machines else "rank",
        residual_ns=None if residual is None or not np.isfinite(residual) else round(residual),
        most_offset_ns=round(float(np.ptp(clocks.offset))) if len(clocks.offset) else 0,
        most_drift_ppm=round(1e6 * float(np.abs(clocks.drift).max(initial=0)), 2),
        parts=parts,
    )


def group_uses(job: Job) -> tuple[GroupUse, ...]:
    """Returns one row for each use of process groups, such as data or tensor parallelism: the communication in all
    groups of this use. The rows are sorted by exposed time, the longest first. Returns () if the traces show no
    collective that several ranks share."""
    joined, waiting, roles = job.joined, job.waiting, job.roles
    if not len(joined):
        return ()
    group = joined.group[joined.operation]
    columns = {name: joined.of_members(job.ranks, name) for name in ("started", "ended", "beside", "sent", "received")}
    length = columns["ended"] - columns["started"]
    inside = (waiting.step >= 0) & (waiting.step < job.steps)
    found = []
    for use in sorted(set(roles.use)):
        numbers = [number for number, each in enumerate(roles.use) if each == use]
        mine = np.flatnonzero(np.isin(group, numbers) & inside)
        if not len(mine):
            continue
        per = 1 / (len(unique(joined.rank[mine])) * job.steps)
        sent = columns["sent"][mine]
        present = unique(group[mine])
        exchanges = mine[np.isin(joined.kind[joined.operation[mine]], EXCHANGES)]
        imbalance, fullest = _imbalance(job, exchanges, columns["received"])
        found.append(
            GroupUse(
                use=use,
                told_by="name" if all(roles.by_name[number] for number in present) else "pattern",
                groups=len(present),
                ranks=max(joined.groups[number].size for number in present),
                operations=round(len(mine) * per, 2),
                sent_bytes=round(float(sent.sum()) * per) if (sent >= 0).all() else None,
                transfer_ns=round(float(waiting.transfer[mine].sum()) * per),
                waiting_ns=round(float(waiting.waits[mine].sum()) * per),
                exposed_ns=round(float((length - columns["beside"])[mine].sum()) * per),
                hidden_ns=round(float(columns["beside"][mine].sum()) * per),
                imbalance=imbalance,
                imbalanced_rank=fullest,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.exposed_ns))


def _imbalance(job: Job, members: I64, received: I64) -> tuple[float | None, int | None]:
    if not len(members) or (received[members] < 0).any():
        return None, None
    total = np.bincount(job.joined.rank[members], received[members], len(job.ranks))
    total = np.where(np.bincount(job.joined.rank[members], minlength=len(job.ranks)) > 0, total, np.nan)
    if not np.nansum(total):
        return None, None
    return round(float(np.nanmax(total) / np.nanmean(total)), 4), job.ranks[int(np.nanargmax(total))].number


def stages_of(job: Job, lines: Lines) -> tuple[Stage, ...]:
    """Returns the stages of a job's pipeline, with the times for which they wait for each other (bubbles). Returns ()
    if there is no pipeline. `lines` has the costs of all lines by rank."""
    if job.roles.stages < 2:
        return ()
    joined, waiting = job.joined, job.waiting
    piped = np.array([use == PIPELINE for use in job.roles.use])[joined.group[joined.operation]]
    shape = (len(job.ranks), job.steps)
    # A receive that waits beside computation is no bubble.
    idle = np.maximum(waiting.waits - joined.of_members(job.ranks, "beside"), 0)
    waits = by_rank_and_step(np.where(piped, idle, 0), joined.rank, waiting.step, shape)
    bubble = np.minimum(waits, np.maximum(recorded_steps(job)[None, :] - job.own, 0)).mean(axis=1)
    own = np.array([job.usual[members].mean() for members in job.roles.members()])
    longest = int(own.argmax())
    peers = np.flatnonzero(job.roles.role != longest).tolist()
    late = float(own[longest] - np.delete(own, longest).mean())
    first = int(job.roles.members()[longest][0])
    causes = causes_of(job, first, peers, lines, late) if late > 0 else ()
    return tuple(
        Stage(
            stage=stage,
            ranks=tuple(job.ranks[index].number for index in members),
            own_ns=round(float(own[stage])),
            bubble_ns=round(float(bubble[members].mean())),
            causes=causes if stage == longest else (),
        )
        for stage, members in enumerate(job.roles.members())
    )


def fleet_lines(job: Job, lines: Lines) -> tuple[FleetLine, ...]:
    """Returns the 50 source lines that cost most, with their costs over all ranks. The costliest line is first.

    Args:
        job: The job.
        lines: The costs of all lines by rank.
    """
    places: dict[tuple[object, ...], Where] = {}
    shape = (len(_COLUMNS), len(job.ranks))
    times: dict[tuple[object, ...], _Reals] = {}
    for row, (where, kind) in enumerate(zip(lines.places, lines.kinds, strict=True)):
        if where.key == (None, None, None, None):
            continue
        places.setdefault(where.key, where)
        column = next(at for at, kinds in enumerate(_COLUMNS) if kind in kinds)
        times.setdefault(where.key, np.zeros(shape))[column] += lines.time[row]
    found = []
    for key, (device, host, waits) in times.items():
        longer = np.maximum(device, host)  # they run side by side
        found.append(
            FleetLine(
                where=places[key],
                device_ns=round(float(device.mean())),
                host_ns=round(float(host.mean())),
                wait_ns=round(float(waits.mean())),
                most_rank=job.ranks[int(longer.argmax())].number,
                most_ns=round(float(longer.max())),
            )
        )
    found.sort(key=lambda line: -(line.device_ns + line.host_ns + line.wait_ns))
    return tuple(found[:MOST_LINES])


def spread(values: Sequence[float] | _Reals | I64) -> float:
    """Returns the standard deviation of `values`, divided by the absolute value of their mean. Returns 0 if there are
    no values."""
    numbers = np.asarray(values, dtype=np.float64)
    return round(float(numbers.std() / max(abs(numbers.mean()), 1e-12)), 4) if numbers.size else 0.0
