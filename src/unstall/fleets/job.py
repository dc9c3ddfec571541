"""`Job`: all ranks of a training job, as recorded or after edits, and the times in one replay of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.fleets.idle_host import ByLine, idle_of, waits_of
from unstall.fleets.join import Joined
from unstall.fleets.roles import Roles
from unstall.fleets.stretches import Stretches
from unstall.fleets.summary import Rank, constant
from unstall.fleets.waiting import Waiting
from unstall.replay.engine import replay, replay_job
from unstall.replay.meeting import Meeting
from unstall.replay.program import Code, Program, Replayed
from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import groups, median

_Reals = NDArray[np.float64]


class Times(msgspec.Struct, frozen=True, eq=False):
    """The times of a job's steps in a replay of all ranks, in ns.

    Attributes:
        ends: An array of shape (ranks, steps): when the host and the device of each rank have finished each step.
        begins: An array of shape (ranks, steps): when each rank's host began each step.
        host_work: For each rank, the host's own work in a step, without its waits: the median of the steps that count.
            What happens in a few steps only, such as a first call of a kernel, is no pace at which the host goes on.
        uncoupled: The number of operations that were left out, since the ranks call them in different orders.
    """

    ends: I64
    begins: I64
    host_work: _Reals
    uncoupled: int

    @property
    def steps(self) -> I64:
        """The length of each step of the job, in ns. A step of the job ends when the last rank has finished the step.
        At this moment, the next step begins. The first step begins when the first rank begins it."""
        lengths: I64 = np.diff(self.ends.max(axis=0), prepend=self.begins[:, 0].min())
        return lengths

    @property
    def window_ns(self) -> float:
        """The mean length of the job's steps, in ns. If there are several steps, the first step does not count, because
        it may contain work that was launched before it."""
        steps = self.steps
        return float(steps[1:].mean()) if len(steps) > 1 else float(steps.mean())

    @property
    def step_ns(self) -> float:
        """The mean length of a step in ns, if the job continued beyond the recorded steps.

        This is `window_ns`, or the own work of a rank's host in a step if that is longer. While a device works off what
        was launched before, its steps may be shorter than its host's, but not once it has caught up.
        """
        return max(self.window_ns, float(self.host_work.max()))


class Job(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All ranks of a training job, with the collectives in which several ranks take part. `programs`, `meeting`,
    `offsets` and `notes` may be those after an edit. The other attributes are as recorded.

    Attributes:
        ranks: The ranks, in ascending order of their numbers. An index of a rank is a position in this tuple.
        joined: The collectives in which several ranks take part.
        waiting: For each rank's part of these collectives, the times of waiting and of transfer.
        roles: The role of each rank. Ranks of one role do the same work on different data.
        programs: The program of each rank, which can be replayed.
        meeting: The collectives at which the programs wait for each other in a replay.
        offsets: For each rank, how much later its program begins than that of the first rank to begin, in ns.
        like: For each rank, the index of the rank whose recorded program its program is made of.
        notes: Sentences about what an edit could not change.
    """

    ranks: tuple[Rank, ...]
    joined: Joined
    waiting: Waiting
    roles: Roles
    programs: tuple[Program, ...]
    meeting: Meeting
    offsets: tuple[int, ...]
    like: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> int:
        """The number of steps that every rank has: the smallest number of steps of a rank."""
        return min(rank.steps for rank in self.ranks)

    @cached_property
    def shapes(self) -> Shapes:
        """The stretches of the ranks as recorded."""
        return Shapes(self.ranks, self.steps)

    @cached_property
    def idle(self) -> ByLine:
        """How long each line of each rank sleeps or loads data, in ns."""
        return idle_of(self.ranks, self.steps, self.shapes.stretches)

    @cached_property
    def waits(self) -> list[int]:
        """For each rank, how often the host of its program waits for the device in its steps."""
        return list(map(waits_of, self.programs))

    @cached_property
    def matched(self) -> list[Bool]:
        """For each rank, a mask of its calls: True for those that were matched with other ranks' calls."""
        found = [np.zeros(len(rank.calls), dtype=np.bool_) for rank in self.ranks]
        for index, mine in groups(self.joined.rank):
            found[index][self.joined.row[mine]] = True
        return found

    @cached_property
    def times(self) -> Times:
        """The times of the steps in a replay of all ranks together."""
        replayed, uncoupled = replay_job(self.programs, self.meeting, self.offsets)
        steps = min(len(program.step_ends) for program in self.programs)
        ends, begins = [], []
        for program, times in zip(self.programs, replayed, strict=True):
            ends.append(ends_of_steps(program, times)[:steps])
            begins.append(times.end[program.step_starts[:steps]])
        worked = np.stack([program.worked[: steps + 1] for program in self.programs])
        host_work = median(np.diff(worked, axis=1)[:, 1 if steps > 1 else 0 :], axis=1)
        return Times(np.stack(ends), np.stack(begins), host_work, uncoupled)

    def with_programs(self, programs: Sequence[Program], meeting: Meeting | None = None, *notes: str) -> Job:
        """Returns the job with other programs.

        Args:
            programs: The program of each rank.
            meeting: The collectives at which the programs wait for each other. None: as before.
            *notes: Sentences that are added to the notes of the job.
        """
        return replace(self, programs=tuple(programs), meeting=meeting or self.meeting, notes=(*self.notes, *notes))

    @cached_property
    def own(self) -> _Reals:
        """An array of shape (ranks, steps): each rank's own work in ns. This is the time that the rank's step would
        take if the rank waited for no other rank, and if collectives took no time."""
        pairs = zip(self.like, self.programs, strict=True)
        return np.stack([own_steps(self.ranks[like], program, self.steps) for like, program in pairs])

    @cached_property
    def settled(self) -> range:
        """The indices of the steps that count in means. If there are several steps, the first step does not count,
        because it may contain work that was launched before it."""
        return range(1 if self.steps > 1 else 0, self.steps)

    @cached_property
    def usual(self) -> _Reals:
        """An array of shape (ranks, steps that count): each rank's own work (`own`) in the steps that count
        (`settled`), in ns."""
        return self.own[:, self.settled.start :]


def ends_of_steps(program: Program, times: Replayed) -> I64:
    """Returns when each step of a program ended in a replay, in ns. A step has ended when the host has finished it and
    all ops of this step and of earlier steps have ended."""
    of_ops = [times.op_end[rows].max(initial=0) for rows in program.ops_of_steps]
    latest: I64 = np.maximum.accumulate(np.maximum(times.end[program.step_ends], of_ops))
    return latest


def make_job(ranks: Sequence[Rank], joined: Joined, waiting: Waiting, roles: Roles) -> Job:
    """Returns the job as it was recorded.

    In a replay, a rank's part of a collective waits for the last rank to arrive, unless it waits for nobody
    (`Waiting.alone`). Its transfer then takes as long as recorded: from this arrival to the end of the rank's part. If
    the ranks' summaries were made with edits of collectives, the transfer is scaled by the factor of these edits.

    Args:
        ranks: The ranks.
        joined: The collectives in which several of these ranks take part.
        waiting: The times of waiting and transfer in these collectives.
        roles: The role of each rank.
    """
    op = joined.of_members(ranks, "op")
    factor = joined.of_rows([rank.comm_factors for rank in ranks])
    transfer = waiting.transfer * factor // 1000
    meeting = _meeting(joined, op, ~waiting.alone, transfer)
    base = waiting.clocks.aligned(waiting.clock_of, waiting.zero)
    offsets = (base - int(base.min())) if len(base) else base
    return Job(
        tuple(ranks),
        joined,
        waiting,
        roles,
        tuple(rank.program for rank in ranks),
        meeting,
        tuple(int(each) for each in offsets),
        tuple(range(len(ranks))),
    )


def _meeting(joined: Joined, op: I64, waits: Bool, transfer: I64) -> Meeting:
    """Returns the collectives that a replay can use: those that have an op in the program of each rank that takes part.

    Args:
        joined: The collectives in which several ranks take part.
        op: For each member (one rank's part of a collective), the index of its op in the rank's program, or -1.
        waits: For each member, whether it waits for the others.
        transfer: For each member, the length of its transfer in ns.
    """
    inside = op >= 0
    whole = np.bincount(joined.operation, ~inside, len(joined)) == 0 if len(joined) else np.zeros(0, np.bool_)
    members = whole[joined.operation]
    first = np.append(0, np.cumsum(np.diff(joined.first)[whole]))
    columns = (joined.rank, op, waits.astype(np.int8), transfer, np.arange(len(op)))
    return Meeting(first, *(column[members] for column in columns))


def is_comm(rank: Rank) -> Bool:
    """Returns a mask of the ops of a rank's program: True for collectives."""
    found = np.zeros(len(rank.program.ops), dtype=np.bool_)
    found[rank.calls.op[rank.calls.op >= 0]] = True
    return found


def own_steps(rank: Rank, program: Program, steps: int) -> _Reals:
    """Returns the length that each step of a rank would have, in ns, if the rank waited for no other rank and if
    collectives took no time. Ops that were launched before the first step take no time either: what was in the queue
    then may have waited for others.

    Args:
        rank: The rank.
        program: The rank's program, which may be edited.
        steps: The number of steps to return.
    """
    program = from_first_step(program)
    ops = program.ops
    alone = replace(program, ops=replace(ops, duration=np.where(is_comm(rank), 0, ops.duration)))
    times = replay(alone)
    ends = ends_of_steps(alone, times)[:steps]
    return np.diff(ends, prepend=times.end[alone.step_starts[0]]).astype(np.float64)


def from_first_step(program: Program) -> Program:
    """Returns a program in which ops that were launched before the first step take no time, and arrive at once."""
    before = program.ops_of_steps[0].start
    if not before:
        return program
    first = np.arange(len(program.ops)) < before
    times = {name: np.where(first, 0, getattr(program.ops, name)) for name in ("duration", "latency", "gap", "lag")}
    return replace(program, ops=replace(program.ops, **times))


class Buckets(msgspec.Struct, frozen=True, eq=False):
    """The times of a rank's program, by stretch. Each stretch of the job's steps is a bucket, with the number of the
    stretch (`Stretches`).

    Attributes:
        of_row: For each instruction, the number of its bucket. -1 if it is outside of all steps.
        of_op: For each op, the number of its bucket. -1 if it is a collective or outside of all steps.
        host: For each bucket, the time of the host's own work, in ns.
        device: For each bucket, the sum of the times of its ops, in ns.
    """

    of_row: I32 | I64
    of_op: I32 | I64
    host: I64
    device: I64

    @classmethod
    def of(cls, rank: Rank, steps: int, stretches: Stretches) -> Buckets:
        program = rank.program
        do, comm, launcher = program.instructions, is_comm(rank), program.launcher
        step = program.step_of(np.arange(len(do)))
        step[step >= steps] = -1
        launches = np.bincount(launcher[comm], minlength=len(do))
        before = np.cumsum(launches) - launches  # a collective ends its own stretch
        begins = np.append(before[program.step_starts], 0)
        of_row = stretches.numbers(step, before - begins[np.maximum(step, 0)])
        of_op = np.where(comm, of_row.dtype.type(-1), of_row[launcher])
        size = stretches.until(steps)
        host = np.bincount(of_row[of_row >= 0], (do.work + do.call)[of_row >= 0], size)
        device = np.bincount(of_op[of_op >= 0], program.ops.duration[of_op >= 0], size)
        return cls(of_row, of_op, host.astype(np.int64), device.astype(np.int64))


class Shapes:
    """The structure of a job's programs, as recorded.

    Attributes:
        stretches: The stretches of all steps that some rank has.
        buckets: For each rank, the times of its stretches in the job's steps.
        positions: For each rank, which collective is at which position of a step, as `_positions` returns it.
        shape: For each rank, the number of collectives in each step. If two ranks have equal numbers, the program of
            one can replace that of the other.
    """

    def __init__(self, ranks: Sequence[Rank], steps: int) -> None:
        self.stretches = Stretches.of(ranks)
        self.buckets = [Buckets.of(rank, steps, self.stretches) for rank in ranks]
        self.positions = [_positions(rank, self.stretches) for rank in ranks]
        self.shape = [_shape(rank, steps) for rank in ranks]


def _shape(rank: Rank, steps: int) -> tuple[int, ...]:
    """Returns the number of collectives in each step of a rank."""
    step = rank.calls.step[(rank.calls.op >= 0) & (rank.calls.step >= 0)]
    return tuple(np.bincount(step, minlength=steps)[:steps].tolist())


def _positions(rank: Rank, stretches: Stretches) -> tuple[I32 | I64, I32]:
    """Returns `(place, op)`. A place is the number of the stretch that a collective ends. `place` has the place of each
    op of the rank's program, or -1 if the op is not a collective in a step. `op` has the op at each place of the rank's
    steps, or -1 if there is none."""
    calls, program = rank.calls, rank.program
    inside = (calls.op >= 0) & (calls.step >= 0)
    at = stretches.numbers(calls.step[inside], calls.position[inside])
    place = np.full(len(program.ops), -1, dtype=at.dtype)
    place[calls.op[inside]] = at
    op = np.full(stretches.until(rank.steps), -1, dtype=np.int32)
    op[at] = calls.op[inside]
    return place, op


def scaled(rank: Rank, buckets: Buckets, host: _Reals, device: _Reals) -> Program:
    """Returns a rank's program with scaled times.

    Args:
        rank: The rank.
        buckets: The stretches of the rank's program.
        host: For each stretch, the factor by which the host's times are multiplied.
        device: For each stretch, the factor by which the times of ops are multiplied.
    """
    program = rank.program
    do, ops = program.instructions, program.ops
    by_row = np.append(host, 1.0)[buckets.of_row]
    by_op = np.append(device, 1.0)[buckets.of_op]
    by_launch = by_row[program.launcher]
    work, call = np.rint(do.work * by_row).astype(np.int64), np.rint(do.call * by_row).astype(np.int64)
    duration = np.rint(ops.duration * by_op).astype(np.int64)
    merged = rank.arrivals.device.any(axis=1)
    ends = rank.arrivals.ends(by_launch, by_op)
    latency = np.where(merged, ends - duration - (work + call)[program.launcher], ops.latency)
    return replace(
        program, instructions=replace(do, work=work, call=call), ops=replace(ops, duration=duration, latency=latency)
    )


def host_free(program: Program) -> Program:
    """Returns the program with a host that takes no time. The ops on the device still take their time, and the host
    still waits for them where the program does."""
    do = program.instructions
    none, at_once = constant(0, len(do)), constant(0, len(program.ops))
    latency = np.where(do.code == Code.STREAM_WAIT, do.latency, 0)
    ops = replace(program.ops, latency=at_once, gap=at_once)
    return replace(program, instructions=replace(do, work=none, call=none, latency=latency), ops=ops)
