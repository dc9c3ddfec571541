"""A `Program` describes a run as instructions that depend on one another.

The host's threads do work, make calls, launch ops, and wait. A device op depends on its launch and on earlier ops.
Instructions are in the order in which the host began them, so each instruction comes after its dependencies. A replay
engine (`engine`) therefore replays a program in one pass.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property

import msgspec
import numpy as np

from unstall.locate.steps import device_begins
from unstall.timeline.columns import I8, I32, I64, Bool


class Code(IntEnum):
    """What an instruction of a program does when its call on the host is over."""

    CALL = 0  # nothing more
    LAUNCH = 1  # its ops arrive on their streams; waits while the stream's launch queue is full
    RECORD = 2  # marks the work launched on `stream` so far
    STREAM_WAIT = 3  # `stream` continues `latency` after the work that the record `target` marked is done
    SYNC_STREAM = 4  # the thread continues `latency` after all work launched on `stream` is done
    SYNC_DEVICE = 5  # … on all streams of the device whose index is `stream`; -1: on every device
    SYNC_EVENT = 6  # … that the record `target` marked
    JOIN = 7  # the thread continues after the instruction `target` of another thread has ended


class Recorded(IntEnum):
    """Kinds of events that a recorder writes. Each kind has a different overhead on the host."""

    OPERATOR = 0
    FRAME = 1
    CALL = 2
    LAUNCH = 3
    NODE = 4  # an op of a graph


WHOLE = 1000
"""The number that stands for the whole of an engine (a part of a device that ops use). Shares of an
engine are counted in thousandths.
"""
CROWDED = 100
"""The rate of an op whose thread blocks find no room beside those of others, in thousandths of its rate alone. It is
not 0, as some blocks of the others always end. On an H200, 117 of 120 loops of kernels and loops of a sum of vectors
that fills the device for 47 us take 1.87 to 2.12 times as long together as one of both: about as long as one after the
other.
"""
KEPT, LOST = 530, 870
"""Data of how many thousandths of the L2 cache is all kept there until it is used again, and of how many is all lost.
Between them, the loss grows evenly. On an H200, `exp` of 53 % of the cache has the rate of the cache, and its time
grows to that of the memory: 40 % of the way at 67 %, 80 % at 80 %, 90 % at 93 %. Two of them on two streams, of other
data each, lose as much as one of twice the data.
"""
RECENT = 64
"""Among how many ops of its stream an op is looked for that it repeats. On an H200, a loop of up to twelve small
kernels, each with data of its own, takes 1.02 times as long as the loops of each of them together; 1.6 times if their
data is more than the L2 cache holds.
"""
QUEUE_CAPACITY = 1022
"""How many launches a stream's launch queue can hold. If it is full, the next launch blocks the
host (H200, CUDA 13).
"""


class Instructions(msgspec.Struct, frozen=True, eq=False):
    """The instructions of a program, one row each. Times are in ns."""

    code: I8
    thread: I32
    stream: I32  # see Code; -1 for none. Of a LAUNCH: that of the call, which orders its ops too
    target: I32  # see Code; -1 for none
    work: I64  # host work since the end of the thread's previous instruction
    call: I64  # duration if there is nothing to wait for
    latency: I64  # from the end of the awaited work, or from a recorded event, until the thread or stream continues
    ops: I64  # end of its ops in `Ops`: instruction i has the rows ops[i-1] … ops[i] - 1
    host: I32  # row of the timeline's host events; -1 for none
    recorded: I32  # shape (instructions, Recorded): number of events of each kind recorded in its work and call

    def __len__(self) -> int:
        return len(self.code)

    @property
    def goes_on(self) -> Bool:
        """A mask of the instructions that belong to the same host call as the instruction before.

        If a call is split into two instructions, the second instruction is the wait of the call, or
        the rest of its time.
        """
        same: Bool = np.append(False, (self.host[1:] == self.host[:-1]) & (self.host[1:] >= 0))
        return same[: len(self)]


class Ops(msgspec.Struct, frozen=True, eq=False):
    """The device ops of a program, one row each, in launch order. Times are in ns.

    Ops of one launch are in the order in which they ran.
    """

    stream: I32
    engine: I32  # the copy engine or the device that it uses; -1 for none
    share: I32  # by how many thousandths it is longer beside one like it, if engines fill gaps; 0: none runs beside it
    blocks: I32  # thousandths of a thread block for each multiprocessor; 0 if unknown
    size: I32  # thousandths of a multiprocessor's room that a block fills
    cached: I32  # thousandths of the size of the L2 cache that it reads and writes
    data: I32  # a number of the memory that it reads and writes; 0 if it is unknown
    after: I32  # an earlier op, on any stream, that it waits for; -1 for none
    duration: I64
    latency: I64  # from the end of the launching call to its arrival on the stream
    gap: I64  # from the end of the op before it on its stream to its start
    lag: I64  # from the end of the op `after` to its start; negative if it starts before that op's end
    uncached: I64  # how much longer it takes if its data is not in the L2 cache
    again: I64  # its duration if it repeats one of the last ops of its stream, and its data is cached; 0: the same
    device: I32  # row of the timeline's device ops; -1 for none

    def __len__(self) -> int:
        return len(self.stream)


class Program(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A run as instructions that depend on one another, so that it can be replayed with other
    times. The docstring of this module says more.
    """

    instructions: Instructions
    ops: Ops
    threads: int
    device_of_stream: I32  # by stream: device index
    engines: int
    capacity: int  # launches a stream can have outstanding
    step_starts: I64  # by step: the instruction that begins it
    step_ends: I64  # by step: the instruction that ends it on the host
    thread_of: I32  # by row of the timeline's threads: its thread here, or -1
    notes: tuple[str, ...] = ()  # one phrase per assumption
    repeats: bool = True  # whether more such steps follow; False if the whole run is one step

    @property
    def launcher(self) -> I64:
        """For each op, the index of the instruction that launched it."""
        ends = self.instructions.ops
        return np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))

    def ops_before(self, instructions: I64) -> I64:
        """Returns, for each instruction (an index, or the number of instructions), how many ops the
        instructions before it launched: the first rows of `ops`.
        """
        ends = self.instructions.ops
        return np.where(instructions > 0, ends[instructions - 1], 0)

    @cached_property
    def ops_of_steps(self) -> tuple[slice, ...]:
        """For each step, the rows of the ops that it launched."""
        starts, after = self.step_starts, self.step_ends + 1
        first = self.ops_before(starts).tolist()
        last = self.ops_before(np.minimum(after, np.append(starts[1:], after[-1:]))).tolist()
        return tuple(map(slice, first, last))

    @cached_property
    def worked(self) -> I64:
        """How long the thread that runs the steps has worked when the first step begins and when each
        step ends on the host, in ns. Its waits do not count.
        """
        do = self.instructions
        done = np.append(0, np.cumsum(np.where(do.thread == 0, do.work + do.call, 0)))
        found: I64 = done[np.append(self.step_starts[:1], self.step_ends + 1)]
        return found

    def step_of(self, instructions: I64) -> I64:
        """Returns, for each instruction (an index), the number of the step to which it belongs, or
        -1 if it belongs to none.
        """
        step = np.searchsorted(self.step_starts, instructions, side="right") - 1
        inside = (step >= 0) & (instructions <= self.step_ends[np.maximum(step, 0)])
        return np.where(inside, step, -1)


class Replayed(msgspec.Struct, frozen=True, eq=False):
    """The start and end of each instruction and each op of a program, in ns on the timeline's clock."""

    start: I64  # by instruction: when its call begins
    end: I64
    op_start: I64  # by op
    op_end: I64

    def window(self, program: Program) -> tuple[int, int]:
        """Returns `(start, end)`: the window of time that the steps fill, in ns. It is the same
        window as in `locate.steps.Steps.window`.

        This window excludes device work that was launched before the first step. It includes all
        device work of the steps, even work that still runs after the last step ended on the host.
        """
        start, end = int(self.end[program.step_starts[0]]), int(self.end[program.step_ends[-1]])
        starts, after = program.step_starts, program.step_ends[-1] + 1
        second = starts[1] if len(starts) > 1 else after
        first_op, second_op, end_op = program.ops_before(np.array([starts[0], second, after])).tolist()
        before = int(self.op_end[:first_op].max(initial=start))
        begins = device_begins(start, before, int(self.op_end[first_op:second_op].max(initial=start)))
        return begins, max(end, int(self.op_end[first_op:end_op].max(initial=start)))

    def mean_step_ns(self, program: Program) -> float:
        """Returns the mean step time in ns: the length of `window`, divided by the number of steps."""
        start, end = self.window(program)
        return (end - start) / len(program.step_starts)
