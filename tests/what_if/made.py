"""Made runs as what edits are made to."""

from __future__ import annotations

import numpy as np
from replay.recorded import program_of
from traces import TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import parse
from unstall.what_if.subject import Subject


def subject_of(trace: TraceBuilder) -> Subject:
    """With the recorder's cost still in it."""
    timeline = trace.timeline()
    run = analyse(timeline)
    return Subject(timeline, run.places, run.steps, program_of(timeline))


def edited(subject: Subject, *edits: str) -> Subject:
    for edit in edits:
        subject = parse(edit).apply(subject)
    return subject


def step_us(trace: TraceBuilder, *edits: str) -> float:
    """What a step settles to."""
    return steady_step_ns(edited(subject_of(trace), *edits).program) / 1000


def same(one: Program, other: Program) -> bool:
    """Whether all columns of two programs are."""
    return all(
        np.array_equal(getattr(getattr(one, table), name), getattr(getattr(other, table), name))
        for table in ("instructions", "ops")
        for name in getattr(one, table).__struct_fields__
    )
