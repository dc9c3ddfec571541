"""Replays programs in Python: the reference implementation of the engine in `native/`.

In this module, an engine of a device is a part of it that ops use, such as the multiprocessors or a
copy engine.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from unstall.replay.meeting import Meeting
from unstall.replay.program import CROWDED, KEPT, LOST, RECENT, WHOLE, Code, Program, Replayed
from unstall.replay.validate import MOST_NS, Before, check, check_job
from unstall.timeline.columns import I64

SPANS = 128
"""The largest number of spans of time for which a replay with `fills_gaps` remembers how much of an
engine is in use.
"""
# Stops at each op of a joint operation: yields the member and the time at which the op could start, and is sent the
# time at which it ends, or None if it waits for nobody. Returns the times of all instructions and ops.
_Run: TypeAlias = Generator[tuple[int, int], int | None, Replayed]


def replay(program: Program) -> Replayed:
    """Replays a program: returns the start and end of every instruction and every op.

    An op starts as soon as five conditions are met. The op's launch has arrived. The previous op on
    the op's stream has ended, and then `gap` has passed. The events for which the op's stream waits
    have completed. The op `after` has ended, and then `lag` has passed. The op's engine (the part
    of the device that it uses) is free. `gap`, `after` and `lag` are columns of `program.Ops`.
    Streams, engines and threads work in program order.

    Raises:
        ValueError: The program is invalid; see `validate.check`.
    """
    return Replay(program.capacity).feed(program)


def replay_job(programs: Sequence[Program], meeting: Meeting, offsets: I64) -> tuple[list[Replayed], list[int]]:
    """Replays programs that wait for each other at joint operations.

    Each program arrives at a joint operation when its op could start. When the last program has arrived, each op lasts
    as long as its transfer takes. The op of a member that waits for nobody lasts so long from its own arrival. Such an
    op uses no engine (part of the device), and its own duration is not used.

    If no program can go on, some wait for each other in a circle. The operations at which they wait are left out: their
    ops are then like any other op, and wait for no other program.

    Args:
        programs: The programs. They share no thread, stream or device.
        meeting: The joint operations.
        offsets: For each program, when its threads begin, in ns.

    Returns:
        `(times, left_out)`. `times` has the times of each program, `left_out` the numbers of the operations that were
        left out, in ascending order.

    Raises:
        ValueError: A program or the meeting is invalid; see `validate`.
    """
    total = 0
    for program in programs:
        total = check(program, Before(total_ns=total)).total_ns
    check_job(programs, meeting, offsets, total)
    joint: list[dict[int, int]] = [{} for _ in programs]
    rank_of, first = meeting.rank.tolist(), meeting.first.tolist()
    waits, transfer = meeting.waits.tolist(), meeting.transfer.tolist()
    for member, (rank, op) in enumerate(zip(rank_of, meeting.op.tolist(), strict=True)):
        joint[rank][op] = member
    runs = [
        Replay(program.capacity).run(program, members, offset)
        for program, members, offset in zip(programs, joint, offsets.tolist(), strict=True)
    ]
    arrivals: list[list[int]] = [[] for _ in range(len(meeting))]
    times: dict[int, Replayed] = {}
    stopped: dict[int, int] = {}  # by program that waits: the operation
    left_out: set[int] = set()
    ready: deque[tuple[int, int | None]] = deque((rank, None) for rank in range(len(programs)))
    while ready:
        rank, ended = ready.popleft()
        stopped.pop(rank, None)
        try:
            member, time = runs[rank].send(ended)
        except StopIteration as finished:
            times[rank] = finished.value
        else:
            operation = bisect_right(first, member) - 1
            members = range(first[operation], first[operation + 1])
            arrivals[operation].append(time)
            if operation in left_out:
                ready.append((rank, None))
            elif waits[member]:
                stopped[rank] = operation
            else:
                ready.append((rank, time + transfer[member]))
            if operation not in left_out and len(arrivals[operation]) == len(members):
                last = max(arrivals[operation])
                ready.extend((rank_of[each], last + transfer[each]) for each in members if waits[each])
        if not ready:
            left_out.update(stopped.values())
            ready.extend((rank, None) for rank in stopped)
    return [times[rank] for rank in range(len(programs))], sorted(left_out)


class Replay:
    """A replay that gets its program part by part. The times are the same as in one replay of the
    whole program.

    In each part, the indices in the columns `Instructions.target` and `Ops.after` count from the
    beginning of the first part. The indices in the column `Instructions.ops` count from the
    beginning of the current part. A part has all streams, threads and engines (parts of a device
    that ops use) of the earlier parts, and may add new ones.
    """

    def __init__(self, capacity: int, fills_gaps: bool = False) -> None:
        """Begins a replay.

        Args:
            capacity: How many launches a stream's launch queue can hold.
            fills_gaps: Whether an engine (a part of the device that ops use) runs an op as soon as
                it has room, even if an op that was launched earlier still waits. With this option,
                if one op takes longer, another op may begin sooner. An op with a `share` runs at
                the same time as other ops, and more slowly than alone; see `Needs`. Ops of one
                launch run in the order in which they arrive.
        """
        self._capacity = capacity
        self._before = Before()
        self._loads: list[_Load] | None = [] if fills_gaps else None
        self._clock: list[int] = []
        self._ready: list[int] = []  # by stream: when all its work so far is done
        self._held: list[int] = []  # by stream: until when an event holds its next op
        self._free: list[int] = []  # by engine: when all its work so far is done
        self._queue: list[list[int]] = []  # by stream: ends of its last launches
        self._recent: dict[int, deque[_Served]] = {}  # by stream: its last ops
        self._end: list[int] = []  # by instruction
        self._marked: list[int] = []
        self._op_end: list[int] = []

    def feed(self, program: Program) -> Replayed:
        """Replays `program`, the next part of the whole program. Returns the times of this part.

        Raises:
            ValueError: The part is invalid. The replay is as it was before the call.
        """
        after = check(program, self._before)
        try:
            next(self.run(program, {}))
        except StopIteration as finished:
            self._before = after
            times: Replayed = finished.value
            return times
        raise AssertionError("a program without joint operations stopped")

    def run(self, program: Program, joint: Mapping[int, int], offset: int = 0) -> _Run:
        """Runs a valid part, and stops at each op in `joint`, which maps ops of the part to their members. `offset` is
        when new threads begin, in ns.
        """
        self._make_room(program, offset)
        times = yield from self._run(program, joint)
        return Replayed(*(np.array(each, dtype=np.int64) for each in times))

    def clock(self, thread: int) -> int:
        """Returns the time in ns at which the thread `thread` has finished all instructions that it got so far."""
        return _at(self._clock, thread, "thread")

    def done(self, stream: int) -> int:
        """Returns the time in ns at which the stream `stream` has finished all ops and waits for
        events that it got so far.
        """
        return max(_at(self._ready, stream, "stream"), self._held[stream])

    def marked(self, instruction: int) -> int:
        """Returns the time in ns at which the work that the RECORD instruction `instruction` marks
        is done: the work launched on its stream before. Returns 0 if the instruction is not a
        RECORD.
        """
        return _at(self._marked, instruction, "instruction")

    def _make_room(self, program: Program, offset: int) -> None:
        more_streams = len(program.device_of_stream) - len(self._ready)
        self._clock += [offset] * (program.threads - len(self._clock))
        self._ready += [0] * more_streams
        self._held += [0] * more_streams
        self._queue += [[] for _ in range(more_streams)]
        self._free += [0] * (program.engines - len(self._free))
        if self._loads is not None:
            self._loads += [_Load() for _ in range(program.engines - len(self._loads))]

    def _run(
        self, program: Program, joint: Mapping[int, int]
    ) -> Generator[tuple[int, int], int | None, tuple[list[int], list[int], list[int], list[int]]]:
        do, ops, capacity = program.instructions, program.ops, self._capacity
        columns = (do.code, do.thread, do.stream, do.target, do.work, do.call, do.latency, do.ops)
        op_stream, op_engine, op_after = ops.stream.tolist(), ops.engine.tolist(), ops.after.tolist()
        op_duration, op_latency = ops.duration.tolist(), ops.latency.tolist()
        op_gap, op_lag = ops.gap.tolist(), ops.lag.tolist()
        columns_of_needs = (ops.share, ops.blocks, ops.size)
        needs = [Needs(*row) for row in zip(*(column.tolist() for column in columns_of_needs), strict=True)]
        op_cached, op_data = ops.cached.tolist(), ops.data.tolist()
        op_uncached, op_again = ops.uncached.tolist(), ops.again.tolist()
        device_of_stream = program.device_of_stream.tolist()
        clock, ready, held, marked = self._clock, self._ready, self._held, self._marked

        first, first_op = len(self._end), len(self._op_end)
        start: list[int] = []
        op_start = [0] * len(ops)
        self._op_end += [-1] * len(ops)
        op = 0
        for code, thread, stream, target, work, call, latency, last in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            begin = clock[thread] + work
            done = begin + call
            mark = 0
            if code == Code.LAUNCH:
                outstanding = self._queue[stream]
                if len(outstanding) >= capacity:
                    done = max(done, outstanding[-capacity])
                    del outstanding[:-capacity]
                follows = ready[stream]
                finished = 0
                waiting = self._waiting(op_stream, op, last)
                while waiting:
                    arrivals = []
                    for branch, (number, *_) in enumerate(waiting):
                        on, after = op_stream[number], op_after[number]
                        if op <= after - first_op < last and self._op_end[after] < 0:
                            continue
                        time = max(begin, done + op_latency[number], max(follows, ready[on]) + op_gap[number])
                        time = max(time, held[on], held[stream])
                        if after >= 0:
                            time = max(time, self._op_end[after] + op_lag[number])
                        arrivals.append((time, number, branch))
                    time, number, branch = min(arrivals)
                    on, engine = op_stream[number], op_engine[number]
                    met = (yield joint[number], time) if number in joint else None
                    ended = time + op_duration[number] if met is None else met
                    if met is None and engine >= 0:
                        alone = duration = op_duration[number]
                        if self._loads is not None:
                            duration = self._duration(on, op_data[number], alone, op_again[number], op_cached[number])
                        if self._loads is not None and needs[number].share and op_uncached[number]:
                            begins = self._loads[engine].when_room(time, needs[number])
                            missing = self._missing(device_of_stream, on, op_cached[number], op_data[number], begins)
                            duration += op_uncached[number] * missing // WHOLE
                        time, ended = self._serve(engine, needs[number], time, duration)
                        if ended > time and needs[number].share:
                            recent = self._recent.setdefault(on, deque(maxlen=RECENT))
                            recent.append(_Served(time, ended, alone, op_cached[number], op_data[number]))
                    op_start[number] = time
                    self._op_end[first_op + number] = ready[on] = ended
                    finished = max(finished, ended)
                    waiting[branch].popleft()
                    if not waiting[branch]:
                        del waiting[branch]
                op = last
                ready[stream] = max(ready[stream], finished)
                outstanding.append(ready[stream])
            elif code == Code.RECORD:
                mark = max(ready[stream], held[stream])
                if latency > 0:
                    ready[stream] = mark + latency
            elif code == Code.STREAM_WAIT:
                held[stream] = max(held[stream], marked[target] + latency)
            elif code == Code.SYNC_STREAM:
                done = max(done, max(ready[stream], held[stream]) + latency)
            elif code == Code.SYNC_DEVICE:
                for on, device in enumerate(device_of_stream):
                    if stream in (-1, device):
                        done = max(done, max(ready[on], held[on]) + latency)
            elif code == Code.SYNC_EVENT:
                done = max(done, marked[target] + latency)
            elif code == Code.JOIN:
                done = max(done, self._end[target])
            start.append(begin)
            marked.append(mark)
            self._end.append(done)
            clock[thread] = done
        return start, self._end[first:], op_start, self._op_end[first_op:]

    def _waiting(self, op_stream: list[int], first: int, last: int) -> list[deque[int]]:
        """Returns the ops of a launch as queues. The first op of any queue can be the next to run."""
        if self._loads is None:
            return [deque(range(first, last))] if first < last else []
        branches: dict[int, deque[int]] = {}
        for op in range(first, last):
            branches.setdefault(op_stream[op], deque()).append(op)
        return list(branches.values())

    def _duration(self, on: int, data: int, duration: int, again: int, cached: int) -> int:
        """Returns how long an op on stream `on` takes alone: `again` if it repeats one of the last ops of this stream,
        as it has the same data and the same `duration`, and its data is still in the L2 cache. It may not be, since the
        ops in between used the cache for other data. Ops of the same data in a row used it once.
        """
        alone, used = _lost(cached), cached
        later_data = 0  # of the op after the one at hand
        for same in reversed(self._recent.get(on, ())):
            if not again or not data or _lost(used) == WHOLE > alone:
                break
            if (same.data, same.duration) == (data, duration):
                gone = _lost(used)
                more = abs(duration - again) * (gone - alone) // (WHOLE - alone) if alone < WHOLE else 0
                return again + (more if duration > again else -more)
            used += 0 if same.data == data or (same.data and same.data == later_data) else same.cached
            later_data = same.data
        return duration

    def _missing(self, device_of_stream: list[int], on: int, cached: int, data: int, time: int) -> int:
        """Returns how much of the data of an op on stream `on` that was in the L2 cache is no longer there, because
        other streams used the cache since the last op on this stream, in thousandths. Only the last two ops of each
        stream count, which are taken to use the same data. Ops of another stream count if they use other data.
        """
        if not self._recent.get(on) or not self._recent[on][-1].cached:
            return 0
        alone = _lost(cached)
        since = self._recent[on][-1].begun
        for stream, recent in self._recent.items():
            if stream != on and device_of_stream[stream] == device_of_stream[on]:
                others = [op for op in list(recent)[-2:] if not data or op.data != data]
                both = sum(
                    op.cached * max(min(time, op.ended) - max(since, op.begun), 0) // (op.ended - op.begun)
                    for op in others
                )
                cached += min(both, max((op.cached for op in others), default=0))
        return WHOLE * (_lost(cached) - alone) // (WHOLE - alone) if alone < WHOLE else 0

    def _serve(self, engine: int, needs: Needs, time: int, duration: int) -> tuple[int, int]:
        """Returns when an op starts and ends on an engine. The op cannot start before `time`."""
        if self._loads is None:
            time = max(time, self._free[engine])
            self._free[engine] = time + duration
            return time, time + duration
        load = self._loads[engine]
        return load.run_beside(time, duration, needs) if needs.share else load.run_alone(time, duration)


class _Served(NamedTuple):
    """When an op ran, how long it takes alone, what it used of the cache in thousandths, and the number of its data."""

    begun: int
    ended: int
    duration: int
    cached: int
    data: int


class Use(NamedTuple):
    """How much of an engine (a part of a device that ops use) is in use. All figures are in
    thousandths.

    Attributes:
        shares: The sum of the shares of the ops that run, up to twice the whole.
        filled: The part of the room for thread blocks, on all its multiprocessors, that is in use.
        touched: The part of its multiprocessors that have thread blocks.
    """

    shares: int = 0
    filled: int = 0
    touched: int = 0

    def beside(self, other: Use) -> Use:
        """Returns how much both use together."""
        shares, filled, touched = (one + more for one, more in zip(self, other, strict=True))
        return Use(min(shares, 2 * WHOLE), min(filled, WHOLE), min(touched, WHOLE))


class Needs(NamedTuple):
    """What an op needs of its engine (the part of a device that it uses). All figures are in
    thousandths.

    Attributes:
        share: By how much longer a loop of the op takes beside another such loop: 1000 if they take
            as long as one after the other. 0 for an op that needs the whole engine, without interruption.
        blocks: The number of its thread blocks for each multiprocessor. 0 if it is unknown: then some are on each.
        size: The part of a multiprocessor's room that a thread block fills.
    """

    share: int
    blocks: int = 0
    size: int = 1

    @property
    def use(self) -> Use:
        """How much of the engine the op uses while it runs."""
        most = WHOLE // self.size
        full = self.blocks >= most * WHOLE
        filled = WHOLE if full else min(self.blocks * self.size // WHOLE, WHOLE)
        return Use(self.share, filled, min(self.blocks or WHOLE, WHOLE))

    def has_room(self, use: Use) -> bool:
        """Returns whether a block of the op finds room on a multiprocessor, beside ops that use `use`. The hardware
        gives a thread block to the multiprocessor with the most room, and never takes a block back.
        """
        return use.touched < WHOLE or WHOLE - use.filled >= self.size

    def pace(self, use: Use) -> int:
        """Returns the op's rate beside earlier ops that use `use`, in thousandths of its rate alone.

        Two loops on two streams take `1 + (a + b) / 2` times as long as one of them, if their ops have the
        shares `a` and `b`, and are as long as each other. An op is slower only while an earlier one runs; the
        next op of the other loop is the later one then, and is slower itself. So each is slower for half of the
        time of the other, and both take that long if the rate is `(2 - a - b) / (2 + a + b)`. If the op has
        blocks on more multiprocessors than the others, it meets them only on theirs.

        If no block of the op finds room beside those of the others, it has at most the rate `CROWDED`. An op that fills
        the room by itself is none of these: how it shares the device with its like was measured.
        """
        if not use.shares:
            return WHOLE
        both, mine = self.share + use.shares, min(self.blocks, WHOLE)
        if use.touched < mine:
            both = both * use.touched // mine
        beside = WHOLE * (2 * WHOLE - both) // (2 * WHOLE + both) if both < 2 * WHOLE else 0
        crowded = self.blocks and self.use.filled < WHOLE and not self.has_room(use)
        return min(beside, CROWDED) if crowded else beside


class _Load:
    """How much of an engine is in use over time, as spans of time. From `start[i]` to `start[i +
    1]`, ops use `used[i]`.

    The first span begins at 0. In the last span, which never ends, nothing is in use. If there are
    too many spans, the first two are merged, and the merged span gets the larger of the two uses.
    So a merged span never has more free room than the engine really had.
    """

    def __init__(self) -> None:
        self.start = [0]
        self.used = [Use()]

    def run_alone(self, time: int, duration: int) -> tuple[int, int]:
        """Reserves the whole engine for the first idle interval of length `duration` from `time`
        on. Returns the interval as `(begin, end)`.
        """
        for span in range(self._at(time), len(self.start) - 1):
            if self.used[span].shares or self.used[span].filled:
                time = self.start[span + 1]
            elif time + duration <= self.start[span + 1]:
                break
        self._occupy(time, time + duration, Use(2 * WHOLE, WHOLE, WHOLE))
        return time, time + duration

    def when_room(self, time: int, needs: Needs) -> int:
        """Returns the first time, from `time` on, at which an op with these needs can begin."""
        span = self._at(time)
        while not needs.pace(self.used[span]):
            span += 1
            time = self.start[span]
        return time

    def run_beside(self, time: int, duration: int, needs: Needs) -> tuple[int, int]:
        """Reserves what the op needs from `time` on, as far as it is free, until the work of the op
        is done. Returns `(begin, end)`: when the op runs.
        """
        begun = -1
        parts = []
        span = self._at(time)
        work = duration * WHOLE
        while work:
            pace = needs.pace(self.used[span])
            until = self.start[span + 1] if span + 1 < len(self.start) else None
            if pace:
                begun = time if begun < 0 else begun
                ends = time - (-work // pace)
                if until is None or ends <= until:
                    ends = min(ends, MOST_NS)
                    parts.append((time, ends))
                    time = ends
                    break
                parts.append((time, until))
                work -= (until - time) * pace
            assert until is not None  # nothing is in use in the last span
            time = until
            span += 1
        for start, end in parts:
            self._occupy(start, end, needs.use)
        return begun if begun >= 0 else time, time

    def _at(self, time: int) -> int:
        return bisect_right(self.start, time) - 1

    def _occupy(self, begun: int, done: int, more: Use) -> None:
        if begun == done:
            return
        self._cut(begun)
        self._cut(done)
        first, end = self._at(begun), self._at(done)
        for span in range(first, end):
            self.used[span] = self.used[span].beside(more)
        for span in (end, first):
            if span > 0 and self.used[span] == self.used[span - 1]:
                del self.start[span], self.used[span]

    def _cut(self, time: int) -> None:
        """Splits a span at `time`, so that a span begins at `time`."""
        if self.start[self._at(time)] == time:
            return
        if len(self.start) == SPANS:
            self.used[0] = Use(*map(max, self.used[0], self.used[1]))
            del self.start[1], self.used[1]
        span = self._at(time)
        self.start.insert(span + 1, time)
        self.used.insert(span + 1, self.used[span])


def _lost(used: int) -> int:
    """Returns how much of some data is gone from the L2 cache once as much of it was used as `used`, both in
    thousandths (see `KEPT`).
    """
    return WHOLE * min(max(used - KEPT, 0), LOST - KEPT) // (LOST - KEPT)


def _at(times: list[int], index: int, what: str) -> int:
    if not 0 <= index < len(times):
        raise IndexError(f"{what} {index} is none of {len(times)}")
    return times[index]
