"""Programs of made traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import HealthCheck, Phase
from profiles import examples
from traces import Event, TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.replay.build import build
from unstall.replay.program import Code, Program
from unstall.timeline.columns import Timeline

A_FEW = examples(
    25,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
"""For laws of recorded runs: an example is a file that is written and read."""

Listed: TypeAlias = tuple[str, int, int, int, int]


class Trace(TraceBuilder):
    """Entering and leaving takes no time, so that what is made is all there is."""

    def __init__(self, *, latency_us: float = 3, wake_us: float = 0, queue: int = 1022, devices: int = 1) -> None:
        names = tuple(f"device {number}" for number in range(devices))
        super().__init__(enter_us=0, latency_us=latency_us, wake_us=wake_us, queue=queue, devices=names)


def program_of(timeline: Timeline) -> Program:
    steps = analyse(timeline).steps
    return build(timeline, steps.start, steps.end)


def program(trace: TraceBuilder, events: Sequence[Event] | None = None) -> Program:
    return program_of(trace.timeline(events))


def listed(program: Program) -> list[Listed]:
    """(code, stream, work, call, latency) of every instruction but the marks of steps."""
    do = program.instructions
    marks = {*program.step_starts.tolist(), *program.step_ends.tolist()}
    return [
        (Code(do.code[i]).name, int(do.stream[i]), int(do.work[i]), int(do.call[i]), int(do.latency[i]))
        for i in range(len(do))
        if i not in marks
    ]


def only(program: Program, *codes: Code) -> list[Listed]:
    """As `listed`, those of some codes."""
    return [row for row in listed(program) if Code[row[0]] in codes]


def dated(program: Program, *columns: str) -> list[tuple[int, ...]]:
    """Some columns of every op."""
    return list(zip(*(getattr(program.ops, column).tolist() for column in columns), strict=True))
