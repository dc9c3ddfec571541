"""Changes of a program that several edits need: ops go to other streams, or instructions take no time."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from unstall.replay.program import Code, Program
from unstall.timeline.columns import I32, I64, Bool
from unstall.timeline.grouping import groups


def on_streams(program: Program, stream: I32 | I64, after: I32 | I64, lag: I64, device_of_stream: list[int]) -> Program:
    """Returns the program with its ops on other streams, some of which may be new, and waiting for
    other ops.

    Args:
        program: The program.
        stream: For each op, the number of its stream.
        after: For each op, an earlier op that it waits for, or -1.
        lag: For each op, the time in ns from the end of the op in `after` to its own start.
        device_of_stream: For each stream, the index of its device.
    """
    # A graph follows the stream of the call that launches it; a single op follows its own stream.
    do = program.instructions
    launched = do.stream.copy()
    moved = program.launcher[stream != program.ops.stream]
    launched[moved] = stream[stream != program.ops.stream]
    return replace(
        program,
        instructions=replace(do, stream=launched),
        ops=replace(program.ops, stream=stream.astype(np.int32), after=after.astype(np.int32), lag=lag),
        device_of_stream=np.array(device_of_stream, dtype=np.int32),
    )


def neutral(program: Program, chosen: Bool) -> Program:
    """Returns the program in which the chosen instructions and their ops take no time and delay nothing."""
    gone, after = chosen[program.launcher], program.ops.after
    if gone.any():
        # On a stream of their own they take no room in a launch queue.
        devices = program.device_of_stream
        stream = np.where(gone, len(devices), program.ops.stream)
        own = int(devices[program.ops.stream[gone][0]])
        after = np.where(gone, -1, _without(after, program.ops.stream, gone))
        program = on_streams(program, stream, after, program.ops.lag, [*devices.tolist(), own])
    do, ops = program.instructions, program.ops
    # An instruction that others wait for must stay one; it just takes no time.
    code = np.where(chosen & ~np.isin(do.code, (Code.LAUNCH, Code.RECORD)), Code.CALL, do.code).astype(np.int8)
    return replace(
        program,
        instructions=replace(do, code=code, call=np.where(chosen, 0, do.call)),
        ops=replace(
            ops,
            engine=np.where(gone, -1, ops.engine).astype(np.int32),
            duration=np.where(gone, 0, ops.duration),
            latency=np.where(gone, 0, ops.latency),
            gap=np.where(gone, 0, ops.gap),
        ),
    )


def _without(after: I32, stream: I32, gone: Bool) -> I64:
    """Returns, for each op, which op it waits for once the ops in `gone` are removed, or -1.

    If the op in `after` is removed, that is the last op before it, on its stream, that is not
    removed.

    Args:
        after: For each op, the op that it waits for now, or -1.
        stream: For each op, its stream.
        gone: A mask of the removed ops.
    """
    left = np.full(len(stream) + 1, -1, dtype=np.int64)  # -1 of an op that follows none
    for _, mine in groups(stream):
        left[mine] = np.maximum.accumulate(np.where(gone[mine], -1, mine))
    return left[after]
