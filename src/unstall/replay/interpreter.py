"""The replay engine in Python: the twin of `_engine.c`, and the definition of what that does."""

from __future__ import annotations

import numpy as np

from unstall.replay.check import check
from unstall.replay.program import Code, Program, Replayed


def replay(program: Program) -> Replayed:
    """When everything in a program happens.

    An op starts at the latest of: its launch's arrival, the end of its stream's previous op and its gap, the
    events that its stream waits for, the op that it is `after`, and its copy engine's being free. Streams,
    engines and threads are served in the order of the program. Raises ValueError for what is no program, see `check`.
    """
    check(program)
    do, ops = program.instructions, program.ops
    columns = (do.code, do.thread, do.stream, do.target, do.work, do.call, do.latency, do.ops)
    op_stream, op_engine, op_after = ops.stream.tolist(), ops.engine.tolist(), ops.after.tolist()
    op_duration, op_latency = ops.duration.tolist(), ops.latency.tolist()
    op_gap, op_lag = ops.gap.tolist(), ops.lag.tolist()
    device_of_stream = program.device_of_stream.tolist()

    clock = [0] * program.threads
    ready = [0] * len(device_of_stream)  # when all that a stream has been given is done
    held = [0] * len(device_of_stream)  # until when an event holds its next op
    free = [0] * program.engines
    queue: list[list[int]] = [[] for _ in device_of_stream]  # ends of a stream's launches
    start, end = [0] * len(do), [0] * len(do)
    op_start, op_end = [0] * len(ops), [0] * len(ops)
    marked = [0] * len(do)
    op = 0
    for i, (code, thread, stream, target, work, call, latency, last) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        begin = start[i] = clock[thread] + work
        done = begin + call
        if code == Code.LAUNCH:
            outstanding = queue[stream]
            if len(outstanding) >= program.capacity:
                done = max(done, outstanding[-program.capacity])
            follows = ready[stream]
            finished = 0
            while op < last:
                on, engine, after = op_stream[op], op_engine[op], op_after[op]
                time = max(begin, done + op_latency[op], max(follows, ready[on]) + op_gap[op], held[on])
                if after >= 0:
                    time = max(time, op_end[after] + op_lag[op])
                if engine >= 0:
                    time = max(time, free[engine])
                op_start[op] = time
                time += op_duration[op]
                op_end[op] = ready[on] = time
                if engine >= 0:
                    free[engine] = time
                finished = max(finished, time)
                op += 1
            ready[stream] = max(ready[stream], finished)
            outstanding.append(ready[stream])
        elif code == Code.RECORD:
            marked[i] = max(ready[stream], held[stream])
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
            done = max(done, end[target])
        end[i] = clock[thread] = done
    return Replayed(*(np.array(times, dtype=np.int64) for times in (start, end, op_start, op_end)))
