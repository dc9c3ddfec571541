"""Results to hold to budgets."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from report.sample import TYPICAL, results, wheres

from unstall.budgets.budget import Budget
from unstall.budgets.check import check
from unstall.budgets.outcome import Outcome
from unstall.result import LineBytes, LineCount, Reserved, Result, StepCount, Steps

RECORDED = msgspec.structs.replace(
    TYPICAL,
    waits=StepCount(
        most=2,
        step=2,
        count=4,
        lines=(
            LineCount(where=TYPICAL.findings[1].where, most=1, count=3, steps_seen=3, title="It waits.", fix="do not"),
            LineCount(where=TYPICAL.findings[3].where, most=1, count=1, steps_seen=1),
        ),
    ),
    launches=StepCount(
        most=770,
        step=1,
        count=2310,
        lines=(LineCount(where=TYPICAL.findings[0].where, most=770, count=2310, steps_seen=3),),
    ),
    reserved=Reserved(bytes=2_100_000_000, lines=(LineBytes(where=TYPICAL.lines[0].where, bytes=1_000_000),)),
)
"""A run of three steps, of which the second waits twice."""

SIMULATED = msgspec.structs.replace(RECORDED, source=msgspec.structs.replace(RECORDED.source, recorder="virtual"))
WHOLE = msgspec.structs.replace(
    RECORDED, steps=Steps(found_by="whole", count=1, start_ns=0, wall_ns=172_913_004, mean_ns=172_913_004)
)


def outcome_of(result: Result, **limits: Any) -> Outcome:
    """The outcome of the only limit."""
    (outcome,) = check(result, Budget(**limits)).outcomes
    return outcome


_counts = st.builds(
    StepCount,
    most=st.integers(0, 5000),
    step=st.integers(0, 100),
    count=st.integers(0, 10**6),
    lines=st.lists(
        st.builds(
            LineCount,
            where=wheres,
            most=st.integers(0, 5000),
            count=st.integers(0, 10**6),
            steps_seen=st.integers(0, 100),
            title=st.sampled_from(["", "It waits"]),
            fix=st.sampled_from(["", "do not"]),
        ),
        max_size=3,
    ).map(tuple),
)
_reserved = st.builds(
    Reserved,
    bytes=st.integers(0, 2**40),
    lines=st.lists(st.builds(LineBytes, where=wheres, bytes=st.integers(0, 2**40)), max_size=2).map(tuple),
)


@st.composite
def measured(draw: st.DrawFn) -> Result:
    """Any result, with all figures that budgets are about, or without some."""
    result = draw(results())
    return msgspec.structs.replace(
        result,
        waits=draw(st.none() | _counts),
        launches=draw(st.none() | _counts),
        reserved=draw(st.none() | _reserved),
        source=msgspec.structs.replace(result.source, recorder=draw(st.sampled_from([None, "virtual"]))),
    )


budgets = st.builds(
    Budget,
    syncs_per_step=st.none() | st.integers(0, 5000),
    launches_per_step=st.none() | st.integers(0, 5000),
    idle=st.none() | st.floats(0, 1),
    exposed_ns=st.none() | st.integers(0, 2**62),
    step_ns=st.none() | st.integers(1, 2**62),
    reserved_bytes=st.none() | st.integers(0, 2**40),
    races=st.none() | st.just(0),
)
