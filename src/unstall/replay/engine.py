"""Replays a program with the engine in C if it was built, and with the reference implementation in
Python if it was not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from unstall.errors import UsageError
from unstall.replay import interpreter
from unstall.replay.meeting import Meeting
from unstall.replay.program import Program, Replayed
from unstall.timeline.columns import I8, I32, I64

try:
    from unstall.replay import _engine
except ImportError:
    _engine = None  # type: ignore[assignment]  # built only if there is a C compiler


def replay(program: Program) -> Replayed:
    """Replays a program: returns the start and end of every instruction and every op; see
    `interpreter.replay`.

    Raises:
        ValueError: The program is invalid.
        UsageError: The environment variable UNSTALL_ENGINE names an engine that is not available.
    """
    return ENGINES[name()](program)


def replay_job(programs: Sequence[Program], meeting: Meeting, offsets: Sequence[int]) -> tuple[list[Replayed], int]:
    """Replays programs that wait for each other at joint operations; see `interpreter.replay_job`.

    Args:
        programs: The programs.
        meeting: Their joint operations.
        offsets: For each program, when its threads begin, in ns.

    Returns:
        `(times, left_out)`: the times of each program, and the number of operations that were left out.

    Raises:
        ValueError: A program or the meeting is invalid.
        UsageError: The environment variable UNSTALL_ENGINE names an engine that is not available.
    """
    times, left_out = JOBS[name()](programs, meeting, np.asarray(offsets, dtype=np.int64))
    return times, len(left_out)


def name() -> str:
    """Returns the name of the engine that replays programs: "c" or "python". The environment
    variable UNSTALL_ENGINE can force one of the two.
    """
    asked = os.environ.get("UNSTALL_ENGINE", "")
    if asked == "c" and asked not in ENGINES:
        raise UsageError(
            "UNSTALL_ENGINE is c, and the C engine is not built: install a C compiler and then unstall again, "
            "or unset UNSTALL_ENGINE"
        )
    if asked not in ("", "c", "python"):
        raise UsageError(f"UNSTALL_ENGINE is {asked!r}: it can be c or python, or unset")
    return asked or next(iter(ENGINES))


def begin(capacity: int, *, fills_gaps: bool = False) -> Resumable:
    """Begins a replay that gets its program part by part; see `interpreter.Replay`.

    Args:
        capacity: How many launches a stream's launch queue can hold.
        fills_gaps: Whether a part of the device runs a later op while an earlier one cannot begin
            yet.

    Raises:
        ValueError: `capacity` is invalid.
        UsageError: The environment variable UNSTALL_ENGINE names an engine that is not available.
    """
    return RESUMABLE[name()](capacity, fills_gaps)


class Resumable(Protocol):
    """A replay that gets its program part by part. It has the methods of `interpreter.Replay`."""

    def feed(self, program: Program) -> Replayed: ...
    def clock(self, thread: int) -> int: ...
    def done(self, stream: int) -> int: ...
    def marked(self, instruction: int) -> int: ...


class _ReplayInC:
    def __init__(self, capacity: int, fills_gaps: bool = False) -> None:
        self._replay = _engine.Replay(capacity, fills_gaps)
        self.clock, self.done, self.marked = self._replay.clock, self._replay.done, self._replay.marked

    def feed(self, program: Program) -> Replayed:
        return _replayed(self._replay.feed(*_columns(program), program.threads, program.engines))


def _replay_in_c(program: Program) -> Replayed:
    return _replayed(_engine.replay(*_columns(program), program.threads, program.engines, program.capacity))


def _replay_job_in_c(programs: Sequence[Program], meeting: Meeting, offsets: I64) -> tuple[list[Replayed], list[int]]:
    columns = tuple((*_columns(each), each.threads, each.engines, each.capacity) for each in programs)
    joint = (meeting.first, meeting.rank, meeting.op, meeting.waits, meeting.transfer)
    times, left_out = _engine.replay_job(columns, *joint, offsets)
    return list(map(_replayed, times)), left_out


def _replayed(times: tuple[bytearray, bytearray, bytearray, bytearray]) -> Replayed:
    return Replayed(*(np.frombuffer(column, dtype=np.int64) for column in times))


_Columns: TypeAlias = tuple[
    *tuple[I8, I32, I32, I32, I64, I64, I64, I64],
    *tuple[I32, I32, I32, I32, I32, I32, I32, I32],
    *tuple[I64, I64, I64, I64, I64, I64],
    I32,
]


def _columns(program: Program) -> _Columns:
    do, ops = program.instructions, program.ops
    return (
        do.code,
        do.thread,
        do.stream,
        do.target,
        do.work,
        do.call,
        do.latency,
        do.ops,
        ops.stream,
        ops.engine,
        ops.share,
        ops.blocks,
        ops.size,
        ops.cached,
        ops.data,
        ops.after,
        ops.duration,
        ops.latency,
        ops.gap,
        ops.lag,
        ops.uncached,
        ops.again,
        program.device_of_stream,
    )


ENGINES: dict[str, Callable[[Program], Replayed]] = {
    **({"c": _replay_in_c} if _engine else {}),
    "python": interpreter.replay,
}
"""The engines that are available in this process, by name, the preferred one first. Each is a
function that replays a program.
"""

JOBS: dict[str, Callable[[Sequence[Program], Meeting, I64], tuple[list[Replayed], list[int]]]] = {
    **({"c": _replay_job_in_c} if _engine else {}),
    "python": interpreter.replay_job,
}
"""The engines, by name, that can replay programs which wait for each other, the preferred one first. Each is a function
like `interpreter.replay_job`.
"""

RESUMABLE: dict[str, Callable[[int, bool], Resumable]] = {
    **({"c": _ReplayInC} if _engine else {}),
    "python": interpreter.Replay,
}
"""The engines, by name, that can replay a program part by part, the preferred one first. Each is a
function that begins such a replay.
"""
