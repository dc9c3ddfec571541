"""The replay engine in Python: the reference implementation of `_engine.c`."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from unstall.replay.program import WHOLE, Code, Program, Replayed
from unstall.replay.validate import MOST_NS, Before, check

SPANS = 128
"""Largest number of time spans for which a replay with `fills_gaps` stores the use of an engine."""


def replay(program: Program) -> Replayed:
    """Returns the start and end of every instruction and every op of a program.

    An op starts as soon as five conditions are met. The op's launch has arrived. The previous op on the op's stream has
    ended, and then `gap` has passed. The events for which the op's stream waits have completed. The op `after` has
    ended, and then `lag` has passed. The op's engine is free. (`gap`, `after` and `lag` are columns of `program.Ops`.)
    Streams, engines and threads work in program order.

    Raises:
        ValueError: The program is invalid; see `validate.check`.
    """
    return Replay(program.capacity).feed(program)


class Replay:
    """Replays a program part by part. The times are the same as in one replay of the whole program.

    In each part, the indices in `target` and `after` count from the beginning of the first part. The indices in the
    column `ops` of `Instructions` count from the beginning of the current part. A part has all streams, threads and
    engines of the earlier parts, and may add new ones.
    """

    def __init__(self, capacity: int, fills_gaps: bool = False) -> None:
        """Begins a replay.

        Args:
            capacity: How many launches a stream can have outstanding.
            fills_gaps: Whether an engine runs an op as soon as the engine has room, even if an op that was launched
                earlier still waits. With this option, if one op takes longer, another op may begin sooner. An op with a
                `share` runs at the same time as other ops, and more slowly than alone; see `rate_beside`.
        """
        self._capacity = capacity
        self._before = Before()
        self._loads: list[_Load] | None = [] if fills_gaps else None
        self._clock: list[int] = []
        self._ready: list[int] = []  # by stream: when all its work so far is done
        self._held: list[int] = []  # by stream: until when an event holds its next op
        self._free: list[int] = []  # by engine: when all its work so far is done
        self._queue: list[list[int]] = []  # by stream: ends of its last launches
        self._end: list[int] = []  # by instruction
        self._marked: list[int] = []
        self._op_end: list[int] = []

    def feed(self, program: Program) -> Replayed:
        """Replays the next part. If the part is invalid, raises ValueError and leaves the replay unchanged."""
        after = check(program, self._before)
        self._make_room(program)
        start, end, op_start, op_end = self._run(program)
        self._before = after
        return Replayed(*(np.array(times, dtype=np.int64) for times in (start, end, op_start, op_end)))

    def clock(self, thread: int) -> int:
        """Returns the time in ns at which a thread has finished all its instructions so far."""
        return _at(self._clock, thread, "thread")

    def done(self, stream: int) -> int:
        """Returns the time in ns at which a stream has finished all its ops and event waits so far."""
        return max(_at(self._ready, stream, "stream"), self._held[stream])

    def marked(self, instruction: int) -> int:
        """Returns the time in ns at which the work before a RECORD instruction is done; 0 for other instructions."""
        return _at(self._marked, instruction, "instruction")

    def _make_room(self, program: Program) -> None:
        more_streams = len(program.device_of_stream) - len(self._ready)
        self._clock += [0] * (program.threads - len(self._clock))
        self._ready += [0] * more_streams
        self._held += [0] * more_streams
        self._queue += [[] for _ in range(more_streams)]
        self._free += [0] * (program.engines - len(self._free))
        if self._loads is not None:
            self._loads += [_Load() for _ in range(program.engines - len(self._loads))]

    def _run(self, program: Program) -> tuple[list[int], list[int], list[int], list[int]]:
        do, ops, capacity = program.instructions, program.ops, self._capacity
        columns = (do.code, do.thread, do.stream, do.target, do.work, do.call, do.latency, do.ops)
        op_stream, op_engine, op_after = ops.stream.tolist(), ops.engine.tolist(), ops.after.tolist()
        op_duration, op_latency = ops.duration.tolist(), ops.latency.tolist()
        op_gap, op_lag, op_share = ops.gap.tolist(), ops.lag.tolist(), ops.share.tolist()
        device_of_stream = program.device_of_stream.tolist()
        clock, ready, held, marked = self._clock, self._ready, self._held, self._marked

        first, first_op = len(self._end), len(self._op_end)
        start: list[int] = []
        op_start: list[int] = []
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
                while op < last:
                    on, engine, after = op_stream[op], op_engine[op], op_after[op]
                    time = max(begin, done + op_latency[op], max(follows, ready[on]) + op_gap[op])
                    time = max(time, held[on], held[stream])
                    if after >= 0:
                        time = max(time, self._op_end[after] + op_lag[op])
                    ended = time + op_duration[op]
                    if engine >= 0:
                        time, ended = self._serve(engine, op_share[op], time, op_duration[op])
                    op_start.append(time)
                    self._op_end.append(ended)
                    ready[on] = ended
                    finished = max(finished, ended)
                    op += 1
                ready[stream] = max(ready[stream], finished)
                outstanding.append(ready[stream])
            elif code == Code.RECORD:
                mark = max(ready[stream], held[stream])
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

    def _serve(self, engine: int, share: int, time: int, duration: int) -> tuple[int, int]:
        """Returns when an op starts and ends on an engine. The op cannot start before `time`."""
        if self._loads is None:
            time = max(time, self._free[engine])
            self._free[engine] = time + duration
            return time, time + duration
        load = self._loads[engine]
        return load.run_beside(time, duration, share) if share else load.run_alone(time, duration)


class _Load:
    """The use of an engine over time, as time spans.

    From `start[i]` to `start[i + 1]`, `used[i]` thousandths are in use.

    The first span begins at 0. The last span never ends, and its use is 0. If there are too many spans, the first two
    are merged, and the merged span gets the larger of the two uses. So a merged span never has more free room than the
    engine really had.
    """

    def __init__(self) -> None:
        self.start = [0]
        self.used = [0]

    def run_alone(self, time: int, duration: int) -> tuple[int, int]:
        """Reserves the whole engine for the first idle interval of length `duration` from `time` on.

        Returns (begin, end).
        """
        for span in range(self._at(time), len(self.start) - 1):
            if self.used[span]:
                time = self.start[span + 1]
            elif time + duration <= self.start[span + 1]:
                break
        self._occupy(time, time + duration, WHOLE)
        return time, time + duration

    def run_beside(self, time: int, duration: int, share: int) -> tuple[int, int]:
        """Reserves up to `share` of the engine from `time` on, until the work of the op is done.

        Returns (begin, end).
        """
        begun = -1
        parts = []
        span = self._at(time)
        work = duration * share
        while work:
            rate = rate_beside(share, self.used[span])
            until = self.start[span + 1] if span + 1 < len(self.start) else None
            if rate:
                begun = time if begun < 0 else begun
                ends = time - (-work // rate)
                if until is None or ends <= until:
                    ends = min(ends, MOST_NS)
                    parts.append((time, ends, rate))
                    time = ends
                    break
                parts.append((time, until, rate))
                work -= (until - time) * rate
            assert until is not None  # nothing is in use in the last span
            time = until
            span += 1
        for start, end, rate in parts:
            self._occupy(start, end, rate)
        return begun if begun >= 0 else time, time

    def _at(self, time: int) -> int:
        return bisect_right(self.start, time) - 1

    def _occupy(self, begun: int, done: int, share: int) -> None:
        if begun == done:
            return
        self._cut(begun)
        self._cut(done)
        first, end = self._at(begun), self._at(done)
        for span in range(first, end):
            self.used[span] = min(self.used[span] + share, WHOLE)
        for span in (end, first):
            if span > 0 and self.used[span] == self.used[span - 1]:
                del self.start[span], self.used[span]

    def _cut(self, time: int) -> None:
        """Splits a span at `time`, so that a span begins at `time`."""
        if self.start[self._at(time)] == time:
            return
        if len(self.start) == SPANS:
            self.used[0] = max(self.used[0], self.used[1])
            del self.start[1], self.used[1]
        span = self._at(time)
        self.start.insert(span + 1, time)
        self.used.insert(span + 1, self.used[span])


def rate_beside(share: int, used: int) -> int:
    """Returns the share of an engine that an op gets beside other ops. All shares are in thousandths.

    A kernel uses the device unevenly: it waits for memory, and then it moves bytes at the full rate. So an op with a
    share of 30 % is modelled as an op that needs the whole engine for 30 % of the time. If other ops need the engine
    for 50 % of the time, the op and the others need it at once for 15 % of the time. During this time, the op waits. So
    it gets only 85 % of its share. It never gets more than the others leave.

    Args:
        share: The share that the op gets if it runs alone.
        used: The share that the other ops use.
    """
    return min(share - share * share * used // WHOLE**2, WHOLE - used)


def _at(times: list[int], index: int, what: str) -> int:
    if not 0 <= index < len(times):
        raise IndexError(f"{what} {index} is none of {len(times)}")
    return times[index]
