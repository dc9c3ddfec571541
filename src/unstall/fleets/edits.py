"""Edits of a whole job, which a replay then times: no stragglers, the work of one rank replaced by that of another,
balanced pipeline stages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.errors import UsageError
from unstall.fleets.idle_host import extra_waits, lower_median, without_waits
from unstall.fleets.job import Job, Shapes, from_first_step, host_free, scaled
from unstall.fleets.join import ranks_text
from unstall.replay.program import Program
from unstall.timeline.columns import I64
from unstall.timeline.grouping import groups, median

_Reals = NDArray[np.float64]
_OF_ONE_RANK = re.compile(r"(?P<rank>\d{1,6})/(?P<edit>.+)$")
NAMES = ("no-stragglers", "rank-like", "balance-stages")
ABOUT = {
    "no-stragglers": "Every operation takes its median time over the ranks that do the same.",
    "rank-like": "One rank's work is replaced by that of another.",
    "balance-stages": "Every stage of the pipeline computes for the same time, and none sleeps, loads data or waits "
    "for its device more than the others.",
}


class FleetEdit(msgspec.Struct, frozen=True):
    """One edit of a job, as the user wrote it: an edit of the whole job (such as `no-stragglers`), or an edit of
    `unstall whatif` that is made to each rank or to a single rank.

    Attributes:
        text: The whole text of the edit, such as "3/remove-syncs".
        name: The name of the edit, such as "remove-syncs".
        argument: The text after the colon that follows the name. None if there is none.
        rank: The number of the only rank to which the edit is made. None if the edit is made to all ranks.
        of_job: True if this is an edit of the whole job. False if this is an edit of `unstall whatif`.
    """

    text: str
    name: str
    argument: str | None
    rank: int | None
    of_job: bool


def parse_edit(text: str) -> FleetEdit:
    """Parses an edit such as `no-stragglers`, `rank-like:3:0`, `comm-speed:2` or `3/remove-syncs`.

    Raises:
        UsageError: There is no such edit, or its argument is not valid.
    """
    found = _OF_ONE_RANK.match(text)
    rank, rest = (int(found["rank"]), found["edit"]) if found else (None, text)
    name, colon, argument = rest.partition(":")
    if name in NAMES:
        if found:
            raise UsageError(f"{text}: {name} changes the whole job: write {rest}")
        if name == "rank-like":
            if not re.fullmatch(r"\d{1,6}:\d{1,6}", argument):
                raise UsageError(f"{text}: write rank-like:R:S, to give rank R the work of rank S")
        elif colon:
            raise UsageError(f"{text}: {name} takes no argument")
        return FleetEdit(text, name, argument or None, None, True)
    from unstall.what_if.edits import names, no_such_edit, parse

    if name not in names():
        before, slash, edit = name.rpartition("/")
        if slash and edit in names():
            raise UsageError(f"{text}: before the slash is the number of a rank, such as 3/{edit}, and not {before!r}")
        raise no_such_edit(name, NAMES)
    parse(rest)
    return FleetEdit(text, name, argument or None, rank, False)


def apply_edit(job: Job, edit: FleetEdit) -> Job:
    """Returns the job after an edit of the whole job. `edit.of_job` must be True.

    Raises:
        UsageError: A rank that `rank-like` names has no trace, the two ranks of `rank-like` call different collectives,
            or `balance-stages` is asked for and there is no pipeline.
    """
    if edit.name == "rank-like":
        one, other = (int(number) for number in (edit.argument or "").split(":"))
        numbers = {rank.number: index for index, rank in enumerate(job.ranks)}
        for number in (one, other):
            if number not in numbers:
                raise UsageError(f"{edit.text}: there is no trace of rank {number}")
        return rank_like(job, numbers[one], numbers[other])
    makes: dict[str, Callable[[Job], Job]] = {"no-stragglers": no_stragglers, "balance-stages": balance_stages}
    return makes[edit.name](job)


def _donor(job: Job, shapes: Shapes, members: Sequence[int]) -> tuple[int, list[int]]:
    """Returns `(donor, alike)`. `donor` is the index of the rank whose program can stand for all ranks of its role.
    `alike` has the indices of the ranks of the role that it can stand for.

    These are the ranks with the most common number of collectives in each step. Of those whose host waits for the
    device as often as is most common, the donor is the rank whose own work is nearest to the median (of two ranks, to
    the shorter).

    Args:
        job: The job.
        shapes: The structure of the job's programs.
        members: The indices of the ranks of the role.
    """
    shape = {index: shapes.shape[index] for index in members}
    usual = Counter(shape.values()).most_common(1)[0][0]
    alike = [index for index in members if shape[index] == usual]
    counts = Counter(job.waits[index] for index in alike)
    most = max(counts.values())
    same = [index for index in alike if counts[job.waits[index]] == most]
    own = job.usual.mean(axis=1)
    off = np.abs(own - lower_median(own[alike])).tolist()
    return min(same, key=lambda index: (off[index], index)), alike


def _with_donors(job: Job, shapes: Shapes, donors: dict[int, int], made: dict[int, Program], notes: list[str]) -> Job:
    """Replaces the programs of some ranks by the programs of other ranks (donors). In the collectives, the donor's op
    at each place of a step replaces the rank's own op. Each rank still begins its first step when it did: why it came
    then is not recorded, so no edit can change it.

    Args:
        job: The job.
        shapes: The structure of the job's programs.
        donors: A dict that maps the index of each changed rank to the index of its donor, whose recorded program it
            gets.
        made: A dict that maps the index of each donor to this program after edits.
        notes: Sentences that are added to the notes of the job.
    """
    programs = list(job.programs)
    op = job.meeting.op.copy()
    of_rank = dict(groups(job.meeting.rank))
    for index, donor in donors.items():
        programs[index] = made[donor]
        mine = of_rank.get(index, op[:0])
        place = shapes.positions[job.like[index]][0][op[mine]]
        stands = shapes.positions[donor][1]
        known = (place >= 0) & (place < len(stands))
        op[mine] = np.where(known, stands[np.where(known, place, 0)], -1)
    if job.steps > 1:  # else all that is left of earlier work would count as gained
        # Collectives before the first step have no place in one, so ranks no longer meet there. Their time as recorded
        # may be that of waiting for a straggler.
        programs = [from_first_step(program) for program in programs]
    whole = np.minimum.reduceat(op, job.meeting.first[:-1]) >= 0 if len(job.meeting) else np.zeros(0, np.bool_)
    meeting = replace(job.meeting, op=op).only(whole)
    offsets, like = list(job.offsets), list(job.like)
    before_steps = [int(rank.step_start[0]) for rank in job.ranks]
    for index, donor in donors.items():
        offsets[index] += before_steps[like[index]] - before_steps[donor]
        like[index] = donor
    first = min(offsets)
    return replace(
        job,
        programs=tuple(programs),
        meeting=meeting,
        offsets=tuple(each - first for each in offsets),
        like=tuple(like),
        notes=(*job.notes, *notes),
    )


def rank_like(job: Job, one: int, other: int) -> Job:
    """Returns the job with the work of rank `one` replaced by the work of rank `other`. Both are indices into
    `job.ranks`, not the numbers of ranks.

    Raises:
        UsageError: The two ranks call different collectives.
    """
    shapes = job.shapes
    if shapes.shape[one] != shapes.shape[other]:
        numbers = ranks_text([job.ranks[one].number, job.ranks[other].number])
        raise UsageError(f"{numbers} call different collectives, so one cannot stand in for the other")
    donor = job.like[other]
    return _with_donors(job, shapes, {one: donor}, {donor: job.programs[other]}, [])


def no_stragglers(job: Job, only: Collection[int] | None = None) -> Job:
    """Returns the job without stragglers. The collectives of a step divide it into stretches. In the returned job, the
    host's time and the device's time in each stretch are the medians over the ranks that do the same work on different
    data (the same role): of an even number of ranks the lower median, so of two ranks the shorter time. How long the
    host sleeps or loads data is compared by line, so that one rank's sleep is not usual because another sleeps
    elsewhere.

    If `only` is None, this changes all ranks, and each transfer takes the median time of similar transfers, too.
    Otherwise, `only` has the indices of the ranks that are changed. Ranks that call other collectives than their peers
    stay as recorded.
    """
    shapes = job.shapes
    donors: dict[int, int] = {}
    made: dict[int, Program] = {}
    notes: list[str] = []
    for members in job.roles.members():
        every = members.tolist()
        donor, alike = _donor(job, shapes, every)
        peers = [index for index in alike if only is None or index not in only] or alike
        if only is not None and donor in only:
            donor, _ = _donor(job, shapes, peers)
        made[donor] = _median_program(job, donor, peers)
        donors |= {index: donor for index in alike if only is None or index in only}
        if odd := sorted(set(every) - set(alike)):
            notes.append(
                f"{ranks_text([job.ranks[index].number for index in odd])} stay as recorded: they call other "
                "collectives than their peers"
            )
    edited = _with_donors(job, shapes, donors, made, notes)
    if only is not None:
        return edited
    return replace(edited, meeting=replace(edited.meeting, transfer=_usual_transfers(edited)))


def _median_program(job: Job, donor: int, peers: Sequence[int]) -> Program:
    """Returns the program of rank `donor` with the median times of the ranks `peers`."""
    shapes, own = job.shapes, job.shapes.buckets[donor]
    idle = job.idle.of(peers)
    asleep = idle.of_ranks
    host, device = (np.array([getattr(shapes.buckets[i], name) for i in peers]) for name in ("host", "device"))
    # Threads of other programs may sleep longer than this host has time.
    usual = np.where((asleep <= host).all(axis=0), lower_median(host - asleep) + idle.usual, lower_median(host))

    def factors(middle: _Reals, mine: I64) -> _Reals:
        return np.where(mine > 0, middle / np.maximum(mine, 1), 1.0)

    return scaled(job.ranks[donor], own, factors(usual, own.host), factors(lower_median(device), own.device))


def _usual_transfers(job: Job) -> I64:
    """Returns, for each member of the job's collectives (`job.meeting`), the median time of similar transfers, in ns.

    Two transfers are similar if their collectives have the same kind, the same position in the step and the same number
    of ranks, if their groups have the same use, and if their ranks have the same role.
    """
    inside = job.meeting.member
    joined, ranks = job.joined, job.ranks
    operation = joined.operation[inside]
    position = joined.of_members(ranks, "position")[inside]
    number = {use: number for number, use in enumerate(sorted(set(job.roles.use)))}
    use = np.array([number[use] for use in job.roles.use], dtype=np.int64)[joined.group[operation]]
    size = np.diff(joined.first)[operation]
    role = job.roles.role[joined.rank[inside]]
    keys = np.stack([joined.kind[operation], use, size, role, position])
    _, like = np.unique(keys, axis=1, return_inverse=True)
    like = like.reshape(-1)
    order = np.argsort(like, kind="stable")
    cuts = np.flatnonzero(np.diff(like[order])) + 1
    usual = np.empty(len(like), dtype=np.int64)
    for rows in np.split(order, cuts):
        usual[rows] = int(median(job.meeting.transfer[rows])) if len(rows) else 0
    return usual


def balance_stages(job: Job) -> Job:
    """Returns the job with balanced pipeline stages. The compute time of each rank is scaled so that all stages compute
    for the same time: the mean over the stages.

    What another stage could not do in a stage's place is not shared: each stage sleeps and loads data for the median
    time of all stages, and waits for its device only as often as they do.

    Raises:
        UsageError: There is no pipeline.
    """
    if job.roles.stages < 2:
        raise UsageError("balance-stages: the traces show no pipeline")
    shapes = job.shapes
    role = job.roles.role
    host, device = (np.array([getattr(each, name) for each in shapes.buckets]) for name in ("host", "device"))
    idle = np.minimum(job.idle.of_ranks, host)
    extra = extra_waits(job.ranks, job.steps, shapes.stretches)
    begins = shapes.stretches.until(job.settled.start)

    def by_stage(total: _Reals) -> _Reals:
        return np.array([total[role == stage].mean() for stage in range(job.roles.stages)])

    def to(middle: Callable[[_Reals], _Reals], times: _Reals) -> _Reals:
        stages = by_stage(times[:, begins:].sum(axis=1, dtype=np.float64))
        factor: _Reals = middle(stages) / np.maximum(stages[role], 1.0)
        return factor[:, None]

    made = (host - idle) * to(np.mean, host - idle) + idle * to(lower_median, idle)
    by_host, by_device = made / np.maximum(host, 1), np.broadcast_to(to(np.mean, device), device.shape)
    programs = []
    for index, like in enumerate(job.like):
        buckets = shapes.buckets[like]
        program = scaled(job.ranks[like], buckets, by_host[index], by_device[index])
        programs.append(without_waits(program, buckets.of_row, extra[index]))
    return job.with_programs(programs)


def slowdown(job: Job) -> float:
    """Returns the slowdown S of "Understanding Stragglers in Large Model Training Using What-if Analysis" (Eq. 1).

    S is the step time of the job divided by the step time of an ideal job. Both step times are of replays in which the
    host takes no time. In the ideal job, each rank computes in each step for the mean time over all ranks, stages and
    steps, and each transfer takes the median time of similar transfers.
    """
    recorded_ns = job.with_programs([host_free(program) for program in job.programs]).times.step_ns
    shapes = job.shapes
    begins = shapes.stretches.first[: job.steps]
    total = np.array([np.add.reduceat(each.device, begins) for each in shapes.buckets], dtype=np.float64)
    ideal = []
    for index, rank in enumerate(job.ranks):
        factor = np.append(total.mean() / np.maximum(total[index], 1.0), 1.0)
        made = host_free(rank.program)
        duration = made.ops.duration * factor[shapes.stretches.step_of(shapes.buckets[index].of_op)]
        ideal.append(replace(made, ops=replace(made.ops, duration=np.rint(duration).astype(np.int64))))
    usual = _usual_transfers(job)
    best = job.with_programs(ideal, replace(job.meeting, transfer=usual))
    return recorded_ns / max(best.times.step_ns, 1.0)
