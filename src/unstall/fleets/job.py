"""`Job`: all ranks together, and what one replay of them says, also after edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unstall.fleets.couple import Coupled, Meeting, couple, ends_of_steps
from unstall.fleets.join import Joined
from unstall.fleets.roles import Roles
from unstall.fleets.summary import Rank
from unstall.fleets.waiting import Waiting
from unstall.replay.engine import replay
from unstall.replay.program import Code, Ops, Program
from unstall.timeline.columns import I64, Bool

_Reals = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Times:
    """What a replay of a job says, in ns."""

    ends: I64  # (ranks, steps): when each rank has finished each step
    begins: I64  # (ranks, steps): when each rank's host began each step
    host_ends: I64  # (ranks, steps): when each rank's host has finished each step

    @property
    def steps(self) -> I64:
        """The length of each step of the job. A step ends when all ranks have finished it, and then the next begins."""
        lengths: I64 = np.diff(self.ends.max(axis=0), prepend=self.begins[:, 0].min())
        return lengths

    @property
    def window_ns(self) -> float:
        """The mean length of the steps. The first counts only if it is the only one: it has what came before in it."""
        steps = self.steps
        return float(steps[1:].mean()) if len(steps) > 1 else float(steps.mean())

    @property
    def step_ns(self) -> float:
        """The mean length of a step, if the job goes on like this.

        The recording begins with devices that are behind their hosts by what one rank made the others wait. Once a
        device has caught up, its host determines how long a step takes.
        """
        hosts = self.host_ends
        caught_up = self.ends[:, -1] - hosts[:, -1] < self.window_ns / 2
        if hosts.shape[1] < 2 or not caught_up.any():
            return self.window_ns
        slowest: float = float((hosts[:, -1] - hosts[:, 0])[caught_up].max()) / (hosts.shape[1] - 1)
        return max(self.window_ns, slowest)


@dataclass(frozen=True, eq=False)
class Job:
    """All ranks of a job, with what they do together.

    `programs` and `meeting` may be edited; `ranks` stay as recorded.
    """

    ranks: tuple[Rank, ...]
    joined: Joined
    waiting: Waiting
    roles: Roles
    programs: tuple[Program, ...]
    meeting: Meeting
    offsets: tuple[int, ...]  # by rank: how much later its clock's 0 is, in ns
    notes: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> int:
        """The number of steps that all ranks have."""
        return min(rank.steps for rank in self.ranks)

    @cached_property
    def coupled(self) -> Coupled:
        """The one program of all ranks."""
        return couple(self.programs, self.meeting, self.offsets)

    @cached_property
    def times(self) -> Times:
        """The replay of all ranks."""
        return times_of(self.coupled)

    def with_programs(self, programs: Sequence[Program], meeting: Meeting | None = None, *notes: str) -> Job:
        """Returns the job with other programs."""
        return replace(self, programs=tuple(programs), meeting=meeting or self.meeting, notes=(*self.notes, *notes))

    @cached_property
    def own(self) -> _Reals:
        """(ranks, steps): how long each rank's step would take if it never waited for another rank and collectives took
        no time, in ns. This is the rank's own work: what makes it late.
        """
        return np.stack([own_steps(rank, program, self.steps) for rank, program in self._pairs])

    @cached_property
    def settled(self) -> range:
        """The steps that count: all but the first of several, which has what came before in it."""
        return range(1 if self.steps > 1 else 0, self.steps)

    @cached_property
    def usual(self) -> _Reals:
        """`own` in the steps that count."""
        return self.own[:, self.settled.start :]

    @property
    def _pairs(self) -> list[tuple[Rank, Program]]:
        return list(zip(self.ranks, self.programs, strict=True))


def times_of(coupled: Coupled) -> Times:
    """Replays a coupled program."""
    times = replay(coupled.program)
    return Times(coupled.step_ends(times), coupled.step_starts(times), coupled.host_ends(times))


def make_job(ranks: Sequence[Rank], joined: Joined, waiting: Waiting, roles: Roles) -> Job:
    """Makes the job as recorded. The transfer of a joint operation lasts from the last arrival to the member's end."""
    op = joined.of_members(ranks, "op")
    factor = joined.of_rows([rank.comm_factors for rank in ranks])
    transfer = waiting.transfer * factor // 1000
    meeting = _meeting(joined, op, transfer)
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
    )


def _meeting(joined: Joined, op: I64, transfer: I64) -> Meeting:
    """Returns the operations that every member has in its program."""
    inside = op >= 0
    whole = np.bincount(joined.operation, ~inside, len(joined)) == 0 if len(joined) else np.zeros(0, np.bool_)
    members = whole[joined.operation]
    first = np.append(0, np.cumsum(np.diff(joined.first)[whole]))
    return Meeting(first, joined.rank[members], op[members], transfer[members])


def members_inside(job: Job) -> I64:
    """Returns the member rows of `Joined` that the job's meeting has, in its order."""
    op = job.joined.of_members(job.ranks, "op")
    whole = np.bincount(job.joined.operation, op < 0, len(job.joined)) == 0 if len(job.joined) else np.zeros(0, bool)
    return np.flatnonzero(whole[job.joined.operation])


def is_comm(rank: Rank) -> Bool:
    """A mask of the ops of a rank's program that communicate."""
    found = np.zeros(len(rank.program.ops), dtype=np.bool_)
    found[rank.calls.op[rank.calls.op >= 0]] = True
    return found


def own_steps(rank: Rank, program: Program, steps: int) -> _Reals:
    """Returns the lengths of a rank's steps if its collectives took no time and it waited for nobody."""
    ops = program.ops
    alone = replace(program, ops=replace(ops, duration=np.where(is_comm(rank), 0, ops.duration)))
    times = replay(alone)
    ends = ends_of_steps(times.end[alone.step_ends], alone.step_of(alone.launcher), times.op_end)[:steps]
    return np.diff(ends, prepend=times.end[alone.step_starts[0]]).astype(np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Buckets:
    """The stretches of a program's steps. A stretch lasts from one collective's launch to the next."""

    steps: int
    stretches: int  # in each step, at most
    of_row: I64  # by instruction: step * stretches + stretch, or -1
    of_op: I64
    host: I64  # by bucket: the host's own time, in ns
    device: I64  # by bucket: the device's time without collectives

    @classmethod
    def of(cls, rank: Rank, steps: int, stretches: int) -> Buckets:
        program = rank.program
        do, comm, launcher = program.instructions, is_comm(rank), program.launcher
        step = program.step_of(np.arange(len(do)))
        step[step >= steps] = -1
        launches = np.bincount(launcher[comm], minlength=len(do))
        before = np.cumsum(launches) - launches  # a collective ends its own stretch
        begins = np.append(before[program.step_starts], 0)
        stretch = np.minimum(before - begins[np.maximum(step, 0)], stretches - 1)
        of_row = np.where(step >= 0, step * stretches + stretch, -1)
        of_op = np.where(comm, -1, of_row[launcher])
        size = steps * stretches
        host = np.bincount(of_row[of_row >= 0], (do.work + do.call)[of_row >= 0], size)
        device = np.bincount(of_op[of_op >= 0], program.ops.duration[of_op >= 0], size)
        return cls(steps, stretches, of_row, of_op, host.astype(np.int64), device.astype(np.int64))


def scaled(rank: Rank, buckets: Buckets, host: _Reals, device: _Reals) -> Program:
    """Returns a rank's program with the times of each bucket multiplied by a factor, on the host and on the device."""
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


def with_ops(program: Program, **columns: np.ndarray) -> Program:
    """Returns the program with other columns of ops."""
    ops: Ops = replace(program.ops, **columns)
    return replace(program, ops=ops)


def host_free(program: Program) -> Program:
    """Returns the program with a host that takes no time. Only the device's work and the waits for it are left."""
    do = program.instructions
    none = np.zeros_like(do.work)
    latency = np.where(do.code == Code.STREAM_WAIT, do.latency, 0)
    ops = replace(program.ops, latency=np.zeros_like(program.ops.latency), gap=np.zeros_like(program.ops.gap))
    return replace(program, instructions=replace(do, work=none, call=none, latency=latency), ops=ops)
