"""The result of `unstall fleet` as data, in the JSON form `unstall.fleet/1`. Times are in ns per step, unless a
docstring says otherwise."""

from __future__ import annotations

import msgspec

from unstall.result import Where

SCHEMA = "unstall.fleet/1"
MOST_LINES = 50
"""The largest number of lines in a result."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a rank is late: at one source line, the rank spends more time than its peers. Peers are the ranks
    that do the same work on different data.

    Attributes:
        kind: What the rank spends the time on: "data loading", "wait" (for the device), "sleep", "host" (the host's own
            work), "clocks" (all its kernels are slower for the same work), "more work" (its kernels have more work, or
            it launches more of them), or "slow kernel".
        where: The source line. For "clocks", and for more work in all kernels, the line whose kernels cost most extra
            time.
        late_ns: How much more time the rank spends on this than its peers, in ns per step.
        text: The evidence, as a phrase.
        count_times: How often this happens on the rank, divided by how often it happens on the peers. None if it never
            happens on the peers.
        factor: The factor by which all kernels of the rank take longer. None if the kernels have no common factor.
        rule: The name of the rule whose finding at this line in the rank's own trace has the advice. None if the advice
            is that for the kind of cause, or if there is none.
        fix: What to do about it. None if there is no advice.
    """

    kind: str
    where: Where
    late_ns: int
    text: str
    count_times: float | None = 1.0
    factor: float | None = None
    rule: str | None = None
    fix: str | None = None


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that makes the others wait, by more than chance explains. Peers are the ranks that do the same work on
    different data. A rank's own work is the time of its step without waiting for other ranks and without the time of
    collectives.

    Attributes:
        rank: The number of the rank.
        steps: The numbers of the steps in which the rank is late, from 1. Empty if the rank is late in general.
        late_ns: How much longer the rank's own work takes than that of its peers, in ns per step. If `steps` is not
            empty, this is the mean over these steps.
        waited_for_ns: For how long the other ranks waited for this rank and for no other, in ns per step.
        chance: The probability that chance alone makes some rank of the job this slow.
        gain_ns: By how much a step would be shorter if this rank worked as its peers do, in ns, once the stragglers
            before it in the report do. So the gains add up; that of a rank is about 0 if others after it are as late.
            It is predicted by a replay of all ranks.
        causes: Up to three causes of the delay, the largest first. Empty if the traces show none.
    """

    rank: int
    steps: tuple[int, ...] = ()
    late_ns: int
    waited_for_ns: int
    chance: float
    gain_ns: int
    causes: tuple[Cause, ...]


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a job, with its times per step and in each step.

    Attributes:
        rank: The number of the rank.
        path: The path of the rank's trace.
        machine: The name of the rank's machine. None if it is unknown.
        stage: The number of the rank's pipeline stage, from 0. 0 if there is no pipeline.
        step_ns: The mean length of the rank's steps, in ns.
        own_ns: The rank's own work in ns per step: the time of a step if the rank waited for no other rank and
            collectives took no time.
        transfer_ns: The rank's time in transfers, in ns per step.
        waiting_ns: The time for which the rank waited for other ranks, in ns per step.
        waited_for_ns: The time for which other ranks waited for this rank and for no other, in ns per step.
        waits_by_step: For each step, the time for which the rank waited for other ranks, in ns.
        blames_by_step: For each step, the number of the rank for which this rank waited longest. -1 if there is none.
        own_by_step: For each step, the rank's own work in ns.
    """

    rank: int
    path: str
    machine: str | None
    stage: int
    step_ns: int
    own_ns: int
    transfer_ns: int
    waiting_ns: int
    waited_for_ns: int
    waits_by_step: tuple[int, ...]
    blames_by_step: tuple[int, ...]
    own_by_step: tuple[int, ...]


class NotRead(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was left out.

    Attributes:
        path: The path of the file.
        why: Why the file was left out.
    """

    path: str
    why: str


class ClockFit(msgspec.Struct, frozen=True, kw_only=True):
    """How well the clocks of a job agree after they have been aligned. They are aligned by the ends of symmetric
    collectives, such as an all-reduce, which end nearly at the same time on all ranks.

    Attributes:
        clocks: The number of clocks.
        of: What has its own clock: each "machine", or each "rank".
        residual_ns: The standard deviation of the differences that remain after the clocks are aligned, in ns. Smaller
            differences between times of two clocks say nothing. None if there is only one clock, or if no collective
            could be used.
        most_offset_ns: The largest difference between the offsets of two clocks before they were aligned, in ns.
        most_drift_ppm: The largest drift of a clock before it was aligned, in parts per million.
        parts: The number of parts of the job whose clocks could not be compared, because no collectives connect them. 1
            if all clocks could be compared.
    """

    clocks: int
    of: str
    residual_ns: int | None
    most_offset_ns: int
    most_drift_ppm: float
    parts: int


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """The communication in all process groups of one use. Counts and times are means per rank and step.

    Attributes:
        use: The use of the groups: "data", "tensor", "pipeline", "expert" or "sequence" (parallelism), or "other".
        told_by: How the use was found: by the "name" of the groups, or by the "pattern" of their collectives.
        groups: The number of groups.
        ranks: The number of ranks in a group. If the groups differ, the largest number.
        operations: The number of collectives.
        sent_bytes: The number of bytes that a rank sends. None if it is not known.
        transfer_ns: The time in transfers, in ns.
        waiting_ns: The time spent waiting for other ranks, in ns.
        exposed_ns: The time of these collectives in which nothing else ran on the device, in ns.
        hidden_ns: The time of these collectives in which the device also did other work, in ns.
        imbalance: For all-to-all exchanges: the bytes received by the rank that receives most, divided by the mean over
            the ranks. None if there are no such exchanges, or if the bytes are not known.
        imbalanced_rank: The number of the rank that receives most. None if `imbalance` is None.
    """

    use: str
    told_by: str
    groups: int
    ranks: int
    operations: float
    sent_bytes: int | None
    transfer_ns: int
    waiting_ns: int
    exposed_ns: int
    hidden_ns: int
    imbalance: float | None = None
    imbalanced_rank: int | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a pipeline.

    Attributes:
        stage: The number of the stage, from 0.
        ranks: The numbers of its ranks.
        own_ns: The own work of a rank of this stage, in ns per step: the time of a step if the rank waited for no other
            rank and collectives took no time.
        bubble_ns: The time for which a rank of this stage waits for other stages and its device does nothing else, in
            ns per step.
        causes: Why the ranks of this stage take longer than those of the other stages. Empty for all stages but the one
            with the most own work.
    """

    stage: int
    ranks: tuple[int, ...]
    own_ns: int
    bubble_ns: int
    causes: tuple[Cause, ...] = ()


class FleetLine(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of one source line over all ranks, per step.

    Attributes:
        where: The source line.
        device_ns: The time of the line's kernels and copies on the device, as a mean over all ranks, in ns.
        host_ns: For how long the host works, sleeps or loads data there, as a mean over all ranks, in ns. The device
            may work at the same time.
        wait_ns: For how long the host waits for the device there, as a mean over all ranks, in ns.
        most_rank: The number of the rank on which the line costs most.
        most_ns: The time of the device or that of the host on this rank, whichever is longer, in ns. It has no waits.
    """

    where: Where
    device_ns: int
    host_ns: int
    wait_ns: int = 0
    most_rank: int
    most_ns: int


class FleetEditStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edit of a job, with the step time after this edit and all edits before it.

    Attributes:
        edit: The edit as the user wrote it, such as "no-stragglers".
        about: A sentence that says what the edit changes.
        step_ns: The step time after the edit, in ns.
        gain_ns: By how much the edit shortens a step, in ns. Negative if the step becomes longer.
        notes: Sentences about what the edit could not change, or assumed.
    """

    edit: str
    about: str
    step_ns: int
    gain_ns: int
    notes: tuple[str, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a collective. Times are in ns from the earliest time in the `Moment`.

    Attributes:
        rank: The number of the rank.
        free: When the rank's previous collective ended. If the step has no earlier one, when the step began.
        start: When the rank arrived at this collective.
        end: When this collective ended on the rank.
        doing: The source line at which the rank spent most of the time from its previous collective to this one. None
            if it is unknown.
    """

    rank: int
    free: int
    start: int
    end: int
    doing: Where | None


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One collective in which the ranks waited long for each other.

    Attributes:
        kind: The kind of the collective, such as "all-reduce".
        group: The name of its process group, and the ranks of the group if they are known.
        step: The number of the step, from 1.
        number: Which collective of the step this is on its ranks, from 1. 0 if it is unknown.
        sent_bytes: The number of bytes that a member sends. None if it is not known.
        waited_ns: The waiting of all ranks that take part, added up, in ns.
        for_rank: The number of the rank that arrived last. None if the clocks cannot tell.
        members: The ranks that take part, in the order of their arrival.
    """

    kind: str
    group: str
    step: int
    number: int = 0
    sent_bytes: int | None = None
    waited_ns: int
    for_rank: int | None
    members: tuple[Member, ...]


class FleetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What holds up a job.

    Attributes:
        bound_by: "straggler": one or a few ranks make the others wait. "stages": the pipeline stages are not in
            balance. "uneven work": ranks differ, but no single rank is to blame. "communication": transfers between
            ranks take the time. "late start": there is only one step, which the ranks begin at different times. "own
            work": the ranks' own work takes the time. "unknown": the replay is too far off to tell.
        text: The verdict as one or more sentences.
    """

    bound_by: str
    text: str


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `unstall fleet`: everything that the report of a job shows, in the JSON form `unstall.fleet/1`. A
    rank's own work is the time of its step if the rank waited for no other rank and collectives took no time.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        source: What was read: a folder, a glob, or a number of files.
        world_size: The number of ranks of the job. None if no trace says it.
        missing: The numbers of the ranks that have no trace.
        not_read: The files that were left out, and why.
        ranks_by: Where the numbers of the ranks come from: "distributedInfo" (in the traces), "file name", or "both".
        unit: "a step", or "the run" if no steps were found. In the second case, the whole recording counts as one step.
        steps: The number of steps that all ranks have.
        step_ns: The mean length of the job's steps as recorded, in ns.
        step_spread: The standard deviation of the lengths of the job's steps, divided by their mean.
        own_spread: The standard deviation of the ranks' own work, divided by its mean.
        replayed_step_ns: The mean length of a step in a replay of all ranks, if the job goes on, in ns. If the host of
            a rank takes longer than the recorded steps, because its device has earlier work, this is the host's time.
        error_ns: The error of this replay: the absolute difference between `step_ns` and the mean length of the same
            steps in the replay.
        clocks: How well the clocks agree after they have been aligned.
        verdict: What holds up the job.
        transfer_ns: The time in transfers, in ns per rank and step.
        waiting_ns: The time spent waiting for other ranks, in ns per rank and step.
        ranks: One row for each rank, in ascending order.
        stragglers: The ranks that make the others wait, by more than chance explains. The one that would cost most if
            it were the only one is first.
        groups: The communication, by use of the process groups (such as data parallelism).
        stages: The stages of the pipeline. Empty if there is no pipeline.
        lines: The costs of the costliest source lines over all ranks. The costliest line is first.
        ideal_step_ns: The step time after the edit `no-stragglers`, in ns.
        slowdown: `replayed_step_ns` divided by `ideal_step_ns`.
        paper_slowdown: The slowdown S of "Understanding Stragglers in Large Model Training Using What-if Analysis".
            None if no collective is shared by several ranks.
        edits: The edits that the user asked for, in the order in which they were made.
        moments: The collectives in which the ranks waited longest.
        notes: Sentences about what is missing in the traces, what was repaired, and what may mislead.
    """

    schema: str = SCHEMA
    version: str
    source: str
    world_size: int | None
    missing: tuple[int, ...]
    not_read: tuple[NotRead, ...]
    ranks_by: str
    unit: str
    steps: int
    step_ns: int
    step_spread: float
    own_spread: float
    replayed_step_ns: int
    error_ns: int
    clocks: ClockFit
    verdict: FleetVerdict
    transfer_ns: int
    waiting_ns: int
    ranks: tuple[RankRow, ...]
    stragglers: tuple[Straggler, ...]
    groups: tuple[GroupUse, ...]
    stages: tuple[Stage, ...]
    lines: tuple[FleetLine, ...]
    ideal_step_ns: int
    slowdown: float
    paper_slowdown: float | None
    edits: tuple[FleetEditStep, ...]
    moments: tuple[Moment, ...]
    notes: tuple[str, ...]
