"""The result of `fleet` as data: the JSON contract `unstall.fleet/1`. Times are in ns, per step unless stated."""

from __future__ import annotations

import msgspec

from unstall.result import Where

SCHEMA = "unstall.fleet/1"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a rank is late.

    Attributes:
        kind: "data loading", "wait", "sleep", "host", "clocks", "more work" or "slow kernel".
        where: The line.
        late_ns: How much more time the rank spends on this than its peers.
        text: The evidence.
        count_times: How often this happens on the rank, divided by how often on its peers; None if never on the peers.
        factor: The factor by which all kernels take longer; None if there is no common factor.
        rule: The rule of the rank's own finding there.
        fix: What to do, from that finding.
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
    """A rank that makes the others wait, by more than chance explains.

    Attributes:
        rank: The rank.
        steps: The steps in which it was late, from 1 on; empty if it is late in all.
        late_ns: How much longer its own work takes than its peers'. If `steps` is not empty, in these steps.
        waited_for_ns: How long the job waited for it alone, per step, by the joined clocks.
        chance: The probability that chance alone makes one rank of the job so slow.
        gain_ns: How much shorter a step is if this rank works as its peers do, by the replay of all ranks.
        causes: Why, the largest cause first; empty if the traces do not tell.
    """

    rank: int
    steps: tuple[int, ...] = ()
    late_ns: int
    waited_for_ns: int
    chance: float
    gain_ns: int
    causes: tuple[Cause, ...]


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: its part of the map of ranks and steps.

    Attributes:
        rank: The rank.
        path: Its trace.
        machine: Its host, if known.
        stage: Its stage of the pipeline.
        step_ns: Its mean step.
        own_ns: Its own work: its step, if it waited for nobody and collectives took no time.
        transfer_ns: Its time in transfers.
        waiting_ns: Its time spent waiting for other ranks.
        waited_for_ns: How long the job waited for it.
        waits_by_step: Its waiting in each step.
        blames_by_step: The rank that it waited for most in each step; -1 for none.
        own_by_step: Its own work in each step.
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
    """A file that is left out, and why."""

    path: str
    why: str


class ClockFit(msgspec.Struct, frozen=True, kw_only=True):
    """How well the clocks agree.

    Attributes:
        clocks: The number of clocks.
        of: "machine" or "rank".
        residual_ns: What remains after the fit; None if there is one clock. Nothing finer is claimed.
        most_offset_ns: The largest offset that was removed.
        most_drift_ppm: The largest drift that was removed.
        parts: The number of parts of the job that no symmetric collective connects. Each part has its own zero time.
    """

    clocks: int
    of: str
    residual_ns: int | None
    most_offset_ns: int
    most_drift_ppm: float
    parts: int


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """Communication in all groups of the same use. Times are per rank and step.

    Attributes:
        use: "data", "tensor", "pipeline", "expert", "sequence" or "other".
        told_by: How the use was found: by the groups' "name", or by the "pattern" of their operations.
        groups: How many groups.
        ranks: How many ranks each has.
        operations: How many operations a rank has in a step.
        sent_bytes: How many bytes a rank sends in a step; None if not known.
        transfer_ns: Time in transfers.
        waiting_ns: Time in waiting for other ranks.
        exposed_ns: Time in which nothing else ran on the device.
        hidden_ns: Time in which the device also computed.
        imbalance: Of exchanges (all-to-all): the most bytes that a rank receives, divided by the mean; else None.
        imbalanced_rank: The rank that receives the most bytes.
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
    """One stage of the pipeline.

    Attributes:
        stage: Its number, from 0 on.
        ranks: Its ranks.
        own_ns: A rank's own work.
        bubble_ns: A rank's waiting for other stages.
        causes: Why it takes longer than the other stages; empty for all but the longest.
    """

    stage: int
    ranks: tuple[int, ...]
    own_ns: int
    bubble_ns: int
    causes: tuple[Cause, ...] = ()


class FleetLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a line costs over all ranks, per step.

    Attributes:
        where: The line.
        device_ns: Device time, mean of all ranks.
        host_ns: The host's own time and its waits, mean of all ranks.
        most_rank: The rank on which it costs most.
        most_ns: What the line costs on this rank.
    """

    where: Where
    device_ns: int
    host_ns: int
    most_rank: int
    most_ns: int


class FleetEditStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edit, with the step time after this edit and all edits before it."""

    edit: str
    about: str
    step_ns: int
    gain_ns: int
    notes: tuple[str, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One rank around one operation, in ns from the beginning of the `Moment`.

    `free` is when the rank's previous collective ended. `doing` is the line at which the rank spent most of its time
    since then.
    """

    rank: int
    free: int
    start: int
    end: int
    doing: Where | None


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks around one operation in which they waited long.

    Attributes:
        kind: What the operation is.
        group: Its group.
        step: The step, from 1 on.
        waited_ns: The sum of the waiting of all members.
        for_rank: The rank that came last; None if the clocks cannot tell.
        members: The ranks, in order of their arrival.
    """

    kind: str
    group: str
    step: int
    waited_ns: int
    for_rank: int | None
    members: tuple[Member, ...]


class FleetVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What holds up the job.

    Attributes:
        bound_by: "straggler", "stages", "uneven work", "communication" or "own work".
        text: The sentence.
    """

    bound_by: str
    text: str


class FleetResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report of a job shows, in the JSON schema `unstall.fleet/1`.

    Attributes:
        schema: Name and version of the JSON form.
        version: The version of unstall.
        source: What was read: a folder, a glob or files.
        world_size: How many ranks the job has; None if no trace says.
        missing: Ranks of the job that have no trace.
        not_read: Files that were left out, and why.
        ranks_by: Where the ranks' numbers come from: "distributedInfo", "file name", or both.
        unit: "a step", or "the run" if no steps were found.
        steps: The number of steps that all ranks have.
        step_ns: The mean step of the job, as recorded.
        step_spread: The standard deviation of the job's steps, divided by their mean.
        own_spread: The standard deviation of the ranks' own work, divided by its mean.
        replayed_step_ns: The mean step in a replay of all ranks.
        error_ns: How far the replay is off.
        clocks: How well the clocks agree.
        verdict: What holds up the job.
        transfer_ns: Time in transfers, per rank and step.
        waiting_ns: Time spent waiting for other ranks, per rank and step.
        ranks: The ranks.
        stragglers: Ranks that make the others wait, by more than chance explains. The costliest is first.
        groups: Communication by the use of groups.
        stages: The stages of the pipeline; empty if there is none.
        lines: Cost by line over all ranks, the costliest first.
        ideal_step_ns: The step after the edit `no-stragglers`.
        slowdown: The replayed step, divided by the ideal step.
        paper_slowdown: The slowdown S of "Understanding Stragglers in Large Model Training Using What-if Analysis".
        edits: The edits that were asked about, in order.
        moments: Operations in which the ranks waited longest.
        notes: Sentences on what is missing, what was repaired, and what may mislead.
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
