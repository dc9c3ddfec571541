"""Replays programs by the C engine where it was built, else by its twin in Python."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from unstall.errors import UsageError
from unstall.replay import interpreter
from unstall.replay.program import Program, Replayed

try:
    from unstall.replay import _engine
except ImportError:
    _engine = None  # type: ignore[assignment]  # built only where there is a C compiler


def replay(program: Program) -> Replayed:
    """When everything in a program happens; see `interpreter.replay`.

    Raises ValueError for what is no program, UsageError where the environment asks for an engine that is not there.
    """
    return ENGINES[name()](program)


def name() -> str:
    """Which engine replays: "c" or "python". The environment variable UNSTALL_ENGINE forces one."""
    asked = os.environ.get("UNSTALL_ENGINE", "")
    if asked == "c" and asked not in ENGINES:
        raise UsageError(
            "UNSTALL_ENGINE is c, and the C engine is not built: install a C compiler and then unstall again, "
            "or unset UNSTALL_ENGINE"
        )
    if asked not in ("", "c", "python"):
        raise UsageError(f"UNSTALL_ENGINE is {asked!r}: it can be c or python, or unset")
    return asked or next(iter(ENGINES))


def _replay_in_c(program: Program) -> Replayed:
    do, ops = program.instructions, program.ops
    times = _engine.replay(
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
        ops.after,
        ops.duration,
        ops.latency,
        ops.gap,
        ops.lag,
        program.device_of_stream,
        program.threads,
        program.engines,
        program.capacity,
    )
    return Replayed(*(np.frombuffer(column, dtype=np.int64) for column in times))


ENGINES: dict[str, Callable[[Program], Replayed]] = {
    **({"c": _replay_in_c} if _engine else {}),
    "python": interpreter.replay,
}
"""The engines that there are, the preferred one first."""
