"""A `Program`: why a run went as it did. Host threads work, call, launch and wait; device ops follow from that.

Instructions stand in an order in which each comes after all that it depends on: the order in which the host began
them. An engine therefore replays a program in one pass, and since every time is a maximum of sums of earlier ones,
a longer instruction never makes anything end sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from unstall.locate.steps import device_begins
from unstall.timeline.columns import I8, I32, I64, Bool


class Code(IntEnum):
    """What an instruction does once its call is made."""

    CALL = 0  # nothing: it takes time
    LAUNCH = 1  # its ops arrive on their streams; waits while the stream's launch queue is full
    RECORD = 2  # marks what `stream` has been given so far
    STREAM_WAIT = 3  # `stream` goes on `latency` after all that the record `target` marked is done
    SYNC_STREAM = 4  # the host goes on `latency` after all that `stream` has been given is done
    SYNC_DEVICE = 5  # … all streams of the device whose index is `stream`; -1 for every device
    SYNC_EVENT = 6  # … all that the record `target` marked
    JOIN = 7  # the thread goes on after the instruction `target`, of another thread, has ended


class Recorded(IntEnum):
    """Kinds of events that a recorder writes, each at a cost of its own to the host."""

    OPERATOR = 0
    FRAME = 1
    CALL = 2
    LAUNCH = 3
    NODE = 4  # an op of a graph


QUEUE_CAPACITY = 1022
"""Launches outstanding on a stream when the next one blocks: measured on an H200 with CUDA 13."""


@dataclass(frozen=True, eq=False, slots=True)
class Instructions:
    """One row an instruction. Times in ns."""

    code: I8
    thread: I32
    stream: I32  # see Code; -1 for none. Of a LAUNCH: where it was launched, which its ops follow and are followed on
    target: I32  # see Code; -1 for none
    work: I64  # what the thread does before it, since the end of its previous instruction
    call: I64  # how long it takes when there is nothing to wait for
    latency: I64  # from the end of what is waited for to going on
    ops: I64  # end of its ops in `Ops`: they are ops[i-1] … ops[i]
    host: I32  # row of the timeline's host events; -1 for none
    recorded: I32  # (instructions, Recorded): events of each kind that were recorded in its work and call

    def __len__(self) -> int:
        return len(self.code)

    @property
    def goes_on(self) -> Bool:
        """Which are a second instruction of the same host call as the one before: its wait, or the rest of its time."""
        same: Bool = np.append(False, (self.host[1:] == self.host[:-1]) & (self.host[1:] >= 0))
        return same[: len(self)]


@dataclass(frozen=True, eq=False, slots=True)
class Ops:
    """One row a device op, in the order of launches; within a launch in the order in which they ran. Times in ns."""

    stream: I32
    engine: I32  # what it needs for itself: a copy engine, or the whole device; -1 for nothing
    after: I32  # an earlier op that it follows, on whatever stream; -1 for none
    duration: I64
    latency: I64  # from the end of the launching call to its arrival
    gap: I64  # from the end of the op before it on its stream to its start
    lag: I64  # from the end of the op that it is `after` to its start; negative where it starts in that one's tail
    device: I32  # row of the timeline's device ops; -1 for none

    def __len__(self) -> int:
        return len(self.stream)


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """See the module's docstring."""

    instructions: Instructions
    ops: Ops
    threads: int
    device_of_stream: I32  # by stream
    engines: int
    capacity: int  # launches a stream can have outstanding
    step_starts: I64  # instructions with which the steps begin
    step_ends: I64  # … and end, on the host
    thread_of: I32  # by row of the timeline's threads: its thread here, or -1
    notes: tuple[str, ...] = ()  # what was inferred, a phrase each

    @property
    def launcher(self) -> I64:
        """By op: the instruction that launched it."""
        ends = self.instructions.ops
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))

    @property
    def ops_inside(self) -> Bool:
        """Which ops the steps launched."""
        launcher = self.launcher
        inside: Bool = (launcher >= self.step_starts[0]) & (launcher <= self.step_ends[-1])
        return inside


@dataclass(frozen=True, eq=False, slots=True)
class Replayed:
    """When everything happens, in ns from the timeline's zero."""

    start: I64  # by instruction: when its call begins
    end: I64
    op_start: I64  # by op
    op_end: I64

    def window(self, program: Program) -> tuple[int, int]:
        """As `locate.steps.Steps.window`: without what the device had queued before, with what it has at the end."""
        start, end = int(self.end[program.step_starts[0]]), int(self.end[program.step_ends[-1]])
        launcher = program.launcher
        before = int(self.op_end[launcher < program.step_starts[0]].max(initial=start))
        second = program.step_starts[1] if len(program.step_starts) > 1 else program.step_ends[-1] + 1
        of_first = (launcher >= program.step_starts[0]) & (launcher < second)
        begins = device_begins(start, before, int(self.op_end[of_first].max(initial=start)))
        return begins, max(end, int(self.op_end[program.ops_inside].max(initial=start)))

    def mean_step_ns(self, program: Program) -> float:
        """The window over the number of steps."""
        start, end = self.window(program)
        return (end - start) / len(program.step_starts)
