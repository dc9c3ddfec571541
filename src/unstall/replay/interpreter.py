"""The replay engine in Python: the reference implementation of `_engine.c`."""

from __future__ import annotations

import numpy as np

from unstall.replay.program import Code, Program, Replayed
from unstall.replay.validate import Before, check

GAPS = 64
"""Number of idle gaps per engine that a replay with `fills_gaps` remembers: the latest ones."""


def replay(program: Program) -> Replayed:
    """Returns when everything in a program happens.

    An op starts at the latest of these times: the arrival of its launch; the end of the previous op on its stream, plus
    `gap`; the end of the events for which its stream waits; the end of the op `after`, plus `lag`; the time at which
    its engine is free. (`gap`, `after` and `lag` are columns of `program.Ops`.) Streams, engines and threads work in
    program order.

    Raises:
        ValueError: The program is invalid; see `validate.check`.
    """
    return Replay(program.capacity).feed(program)


class Replay:
    """Replays a program part by part, with the same times as if the whole program were replayed at once.

    In each part, the indices in `target` and `after` count from the beginning of the first part. The indices in `ops`
    of the instructions count from the beginning of the same part. A part has at least the streams, threads and engines
    of all earlier parts.
    """

    def __init__(self, capacity: int, fills_gaps: bool = False) -> None:
        """Begins a replay.

        Args:
            capacity: How many launches a stream can have outstanding.
            fills_gaps: Whether an engine uses idle gaps: it serves an op in any gap that is long enough, even while an
                op that was launched earlier still waits. With this, a longer op may let another op begin sooner.
        """
        self._capacity = capacity
        self._before = Before()
        self._gaps: list[list[tuple[int, int]]] | None = [] if fills_gaps else None
        self._clock: list[int] = []
        self._ready: list[int] = []  # by stream: when all its work so far is done
        self._held: list[int] = []  # by stream: until when an event holds its next op
        self._free: list[int] = []  # by engine: when all its work so far is done
        self._queue: list[list[int]] = []  # by stream: ends of its last launches
        self._end: list[int] = []  # by instruction
        self._marked: list[int] = []
        self._op_end: list[int] = []

    def feed(self, program: Program) -> Replayed:
        """Replays the next part. Raises ValueError for an invalid part, and then leaves the replay unchanged."""
        after = check(program, self._before)
        self._make_room(program)
        start, end, op_start, op_end = self._run(program)
        self._before = after
        return Replayed(*(np.array(times, dtype=np.int64) for times in (start, end, op_start, op_end)))

    def clock(self, thread: int) -> int:
        """Returns when a thread is done with all its instructions so far, in ns."""
        return _at(self._clock, thread, "thread")

    def done(self, stream: int) -> int:
        """Returns when a stream is done with all its ops so far, in ns."""
        return max(_at(self._ready, stream, "stream"), self._held[stream])

    def marked(self, instruction: int) -> int:
        """Returns when the work before a RECORD instruction is done, in ns; 0 for all other instructions."""
        return _at(self._marked, instruction, "instruction")

    def _make_room(self, program: Program) -> None:
        more_streams = len(program.device_of_stream) - len(self._ready)
        self._clock += [0] * (program.threads - len(self._clock))
        self._ready += [0] * more_streams
        self._held += [0] * more_streams
        self._queue += [[] for _ in range(more_streams)]
        self._free += [0] * (program.engines - len(self._free))
        if self._gaps is not None:
            self._gaps += [[] for _ in range(program.engines - len(self._gaps))]

    def _run(self, program: Program) -> tuple[list[int], list[int], list[int], list[int]]:
        do, ops, capacity = program.instructions, program.ops, self._capacity
        columns = (do.code, do.thread, do.stream, do.target, do.work, do.call, do.latency, do.ops)
        op_stream, op_engine, op_after = ops.stream.tolist(), ops.engine.tolist(), ops.after.tolist()
        op_duration, op_latency = ops.duration.tolist(), ops.latency.tolist()
        op_gap, op_lag = ops.gap.tolist(), ops.lag.tolist()
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
                    if engine >= 0:
                        time = self._serve(engine, time, op_duration[op])
                    op_start.append(time)
                    time += op_duration[op]
                    self._op_end.append(time)
                    ready[on] = time
                    finished = max(finished, time)
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

    def _serve(self, engine: int, time: int, duration: int) -> int:
        """Returns when an engine starts an op that is ready at `time`."""
        free = self._free[engine]
        if self._gaps is not None:
            gaps = self._gaps[engine]
            for row, (begins, ends) in enumerate(gaps):
                begun = max(time, begins)
                done = begun + duration
                if ends > time and done <= ends:
                    gaps[row : row + 1] = [gap for gap in ((begins, begun), (done, ends)) if gap[0] < gap[1]]
                    del gaps[:-GAPS]
                    return begun
            if time > free:
                gaps.append((free, time))
                del gaps[:-GAPS]
        time = max(time, free)
        self._free[engine] = time + duration
        return time


def _at(times: list[int], index: int, what: str) -> int:
    if not 0 <= index < len(times):
        raise IndexError(f"{what} {index} is none of {len(times)}")
    return times[index]
