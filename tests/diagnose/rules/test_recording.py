"""What the recorder took for itself."""

from __future__ import annotations

import pytest
from findings import found, only, result_of
from traces import TraceBuilder


def recorded(us: float) -> TraceBuilder:
    trace = TraceBuilder()
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100)
        if us:
            trace.overhead("Activity Buffer Request", us)
        trace.launch("gemm", 100)
    return trace


def test_the_recorders_own_events_are_listed_and_harmless() -> None:
    """The recorder runs 9-2,009 µs; the kernels run 11-111 and from 2,016 on."""
    finding = only(recorded(2_000), "recording")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 2_000_000, 2_000_000 - 100_000)
    assert finding.harmless
    assert "Activity Buffer Request" in finding.saw


def test_they_bound_no_program() -> None:
    assert result_of(recorded(2_000)).verdict.bound_by != "startup"


def test_where_it_took_nothing_it_is_not_mentioned() -> None:
    assert found(recorded(0), "recording") == []


@pytest.mark.parametrize(
    ("recorder", "slows", "do"),
    [
        (None, "slows every operator on the host (1.2x to 2.6x", "schedule(wait=…, warmup=…)"),
        ("torch", "slows every operator on the host (1.2x to 2.6x", "--recorder cupti"),
        ("cupti", "slows every call of CUDA, and Python at each new line", "--lines none"),
    ],
)
def test_a_recorder_that_slowed_the_steps_is_told_by_its_name(recorder: str | None, slows: str, do: str) -> None:
    """A step takes 218 µs: 1.09 times as long as without."""
    trace = TraceBuilder(unstall={"recorder": recorder, "plain_step_ns": 200_000})
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 200)
        trace.sync()
    finding = only(trace, "recording")
    assert finding.saw.startswith("recording " + slows)
    assert finding.saw.endswith("; a step takes 200 µs when nothing records")
    assert do in finding.fix


def test_one_that_did_not_is_not_mentioned() -> None:
    trace = TraceBuilder(unstall={"recorder": "cupti", "plain_step_ns": 210_000})
    with trace.step():
        trace.launch("gemm", 200)
        trace.sync()
    assert found(trace, "recording") == []
