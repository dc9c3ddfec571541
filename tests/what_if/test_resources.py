"""What each resource costs, and the verdict that follows from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from programs import Program, programs
from recordings import recording
from replay.recorded import A_FEW
from traces import TraceBuilder
from what_if.made import edited, same, step_us, subject_of

from unstall.diagnose.explain import explain
from unstall.diagnose.verdict import Freed
from unstall.diagnose.what_if import what_if
from unstall.errors import UsageError
from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import parse
from unstall.what_if.resources import EDIT_OF, if_free

Body = Callable[[TraceBuilder], object]


def run(body: Body, *, steps: int = 4) -> TraceBuilder:
    trace = TraceBuilder(enter_us=0.001, latency_us=3)
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 10, "step"):
            body(trace)
    return trace


def slow_host(trace: TraceBuilder) -> None:
    for _ in range(4):
        trace.work(50)
        trace.launch("gemm", 5)


def slow_kernels(trace: TraceBuilder) -> None:
    trace.launch("gemm", 400)


def slow_copies(trace: TraceBuilder) -> None:
    trace.launch("gemm", 20)
    trace.copy("HtoD", 400, memory="Pinned", size=1_000_000)


def slow_staging(trace: TraceBuilder) -> None:
    with trace.op("aten::to"):
        trace.copy("HtoD", 400, memory="Pageable", size=1_000_000)
    trace.launch("gemm", 20)


def slow_collectives(trace: TraceBuilder) -> None:
    trace.launch("gemm", 20)
    trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 400)


def slow_loader(trace: TraceBuilder) -> None:
    trace.next_batch(400)
    trace.launch("gemm", 20)


def slow_allocator(trace: TraceBuilder) -> None:
    trace.call("cudaMalloc", 400)
    trace.launch("gemm", 20)


def asleep(trace: TraceBuilder) -> None:
    with trace.named_frame("<built-in function sleep>"):
        trace.work(400)
    trace.launch("gemm", 20)


@pytest.mark.parametrize(
    ("body", "resource", "bound"),
    [
        (slow_host, "host", "launch"),
        (slow_kernels, "kernels", "device"),
        (slow_copies, "copies", "copy"),
        (slow_staging, "copies", "copy"),
        (slow_collectives, "communication", "comm"),
        (slow_loader, "input", "input"),
        (slow_allocator, "allocator", "allocator"),
        (asleep, "sleep", "python"),
    ],
)
def test_the_verdict_names_what_a_step_would_gain_most_by(body: Body, resource: str, bound: str) -> None:
    timeline = run(body).timeline()
    report = explain(timeline, as_recorded=True).result
    freed = report.verdict.if_free
    assert freed is not None
    assert max(freed, key=lambda name: freed[name]) == resource
    assert report.verdict.bound_by == bound
    # Anyone can ask for the same.
    asked = what_if(timeline, EDIT_OF[resource], as_recorded=True).result
    assert asked.undistorted_step_ns - asked.predicted_step_ns == pytest.approx(freed[resource], abs=1)


def test_a_collective_that_waits_for_nothing_but_a_late_host_does_not_bound() -> None:
    """It fills most of the device's time, and would be over before the host comes back."""

    def body(trace: TraceBuilder) -> None:
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 90)
        for _ in range(4):
            trace.work(50)
            trace.launch("gemm", 5)

    assert explain(run(body).timeline(), as_recorded=True).result.verdict.bound_by == "launch"


def test_two_that_gain_alike_are_both_said() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 200)
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200)
        trace.copy("HtoD", 200, memory="Pinned", size=1_000_000)

    verdict = explain(run(body).timeline(), as_recorded=True).result.verdict
    assert verdict.bound_by == "mixed"
    assert "if copies took no time" in verdict.text
    assert "if collectives took no time" in verdict.text


def test_first_use_is_not_promised_to_faster_host_code() -> None:
    """In the first step of four a call takes 20 ms, and as long again with a host that takes no time."""
    trace = TraceBuilder(enter_us=0.001, latency_us=3)
    for number in range(4):
        with trace.step(), trace.frame("train.py", 10, "step"), trace.op("aten::conv2d"):
            trace.work(20 if number else 20_000)
            trace.launch("gemm", 5)
    verdict = explain(trace.timeline(), as_recorded=True).result.verdict
    assert verdict.bound_by == "startup"
    assert verdict.if_free is not None
    assert verdict.if_free["host"] < 0.1 * verdict.if_free["startup"]


def test_a_resource_that_is_not_there_gains_nothing() -> None:
    subject = subject_of(run(slow_kernels))
    gains = if_free(subject, steady_step_ns(subject.program))
    assert {name for name, gain in gains.items() if gain} <= {"kernels", "host", "waits"}


@A_FEW
@given(programs())
def test_what_is_free_gains_what_its_edit_gains(program: Program) -> None:
    subject = subject_of(program)
    step = steady_step_ns(subject.program)
    for name, gain in if_free(subject, step).items():
        assert gain == pytest.approx(step - steady_step_ns(parse(EDIT_OF[name]).apply(subject).program))


# Each edit by itself.


@pytest.mark.parametrize("name", ["copy-speed", "comm-speed", "input-speed", "startup-speed", "sleep-speed"])
def test_as_fast_as_before_is_no_change(name: str) -> None:
    for body in (slow_copies, slow_staging, slow_collectives, slow_loader, asleep):
        subject = subject_of(run(body))
        assert same(edited(subject, f"{name}:1").program, subject.program)


def test_copies_twice_as_fast_take_half() -> None:
    assert step_us(run(slow_copies)) == pytest.approx(420, abs=0.1)
    assert step_us(run(slow_copies), "copy-speed:2") == pytest.approx(220, abs=0.1)


def test_collectives_beside_computation_hold_nothing_up() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 200)
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100)

    assert step_us(run(body)) == pytest.approx(300, abs=0.1)
    assert step_us(run(body), "overlap-comm") == pytest.approx(200, abs=0.1)


def test_streams_that_wait_for_collectives_no_longer_do() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.launch("gemm", 200)
        ready = trace.record()
        trace.stream_wait(ready, stream=20)
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100, stream=20)
        done = trace.record(stream=20)
        trace.stream_wait(done, stream=7)
        trace.launch("gemm", 50)

    assert step_us(run(body)) > 340
    subject = edited(subject_of(run(body)), "overlap-comm")
    assert steady_step_ns(subject.program) / 1000 == pytest.approx(250, abs=3)
    assert "the most that overlap can gain" in subject.notes[0]


def two_loaders(trace: TraceBuilder) -> None:
    for line in (10, 20):
        with trace.frame("train.py", line, "train"):
            trace.next_batch(1_400)
            trace.launch("gemm", 20)


def test_batches_that_are_ready_are_fetched_in_a_millisecond_everywhere_or_at_one_line() -> None:
    whole = step_us(run(two_loaders))
    everywhere = edited(subject_of(run(two_loaders)), "load-ahead")
    assert step_us(run(two_loaders), "load-ahead:train.py:20") == pytest.approx(whole - 400, abs=8)
    assert steady_step_ns(everywhere.program) / 1000 == pytest.approx(whole - 800, abs=16)
    assert "the most that loading ahead can gain" in everywhere.notes[0]


def test_workers_gain_nothing_for_batches_that_take_less_than_to_fetch_one() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.next_batch(900)
        trace.launch("gemm", 20)

    assert step_us(run(body), "load-ahead") == step_us(run(body))


def test_overlap_comm_has_no_place() -> None:
    with pytest.raises(UsageError, match="write overlap-comm: it is about all collectives"):
        parse("overlap-comm:train.py:3")


# Ranking.


def freed(**gains: float) -> Freed:
    return Freed(100.0, gains, error_ns=1.0)


@pytest.mark.parametrize(
    ("gains", "best"),
    [
        ({"host": 50, "kernels": 20}, ["host"]),
        ({"host": 50, "kernels": 48}, ["host", "kernels"]),
        ({"host": 5, "kernels": 6}, ["kernels", "host"]),
        ({"host": 4, "kernels": 4.9}, []),
        ({"host": 0, "kernels": 0}, []),
    ],
)
def test_what_gains_alike_is_named_together(gains: dict[str, float], best: list[str]) -> None:
    assert freed(**gains).best() == best


def test_what_the_replay_cannot_tell_is_not_named() -> None:
    assert Freed(100.0, {"host": 8.0, "kernels": 1.0}, error_ns=9.0).best() == []


def test_data_loading_counts_for_the_sleep_of_its_loader() -> None:
    assert Freed(100.0, {"input": 97.0, "sleep": 98.0}, error_ns=1.0).best() == ["input"]
    assert Freed(100.0, {"input": 40.0, "sleep": 98.0}, error_ns=1.0).best() == ["sleep"]


def test_collectives_within_a_graph_stay_there() -> None:
    def body(trace: TraceBuilder) -> None:
        trace.graph([100, 100])
        trace.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100)

    assert step_us(run(body), "overlap-comm") <= step_us(run(body))


@pytest.mark.parametrize("edit", ["comm-speed:inf", "kernel-speed:inf", "overlap-comm"])
def test_of_a_file_that_tells_of_collectives_ops_may_go(edit: str) -> None:
    """What the file says of a collective goes with its op."""
    answer = what_if(recording("all_reduce_after"), edit).result
    assert answer.predicted_step_ns < answer.undistorted_step_ns
