"""What the verdict says: every sentence is true of the run, and none is at odds with another."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.diagnose.analyse import analyse
from unstall.diagnose.verdict import Freed, judge


def verdict(trace: TraceBuilder) -> str:
    return judge(analyse(trace.timeline())).text


def reading(device_us: float, *, pause_us: float = 0) -> TraceBuilder:
    """Ten kernels, each read by the host, which then pauses."""
    trace = TraceBuilder(launch_us=1, latency_us=0, enter_us=0)
    for _ in range(10):
        with trace.op("aten::mm"):
            trace.launch("gemm", device_us)
        trace.item()
        trace.work(pause_us)
    return trace


def dispatching(device_us: float, *, launch_us: float) -> TraceBuilder:
    trace = TraceBuilder(launch_us=launch_us)
    for _ in range(20):
        with trace.op("aten::mm"):
            trace.launch("gemm", device_us)
    return trace


def test_a_device_that_idles_much_is_not_said_to_be_all_that_bounds_the_run() -> None:
    """Of every 100 µs it computes 67; the first kernel is late by more."""
    text = verdict(dispatching(67, launch_us=98))
    assert text.startswith("Device-bound: the device spends 64.8 % of the time in computing.")
    assert "idle for 35.2 %, mostly waiting for launches (33.2 % of the time)" in text


def test_one_that_hardly_idles_is() -> None:
    text = verdict(dispatching(95, launch_us=98))
    assert text.startswith("Device-bound: the device spends 90.7 % of the time in computing.")


def test_where_no_cause_has_half_of_the_idle_time_the_first_is_its_largest_part() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.op("aten::mm"):
            trace.launch("gemm", 200)
        trace.item()
        trace.work(80)
        with trace.op("aten::mm"):
            trace.launch("gemm", 200)
        trace.next_batch(270)
        with trace.op("aten::mm"):
            trace.launch("gemm", 20)
            trace.work(90)
    text = verdict(trace)
    assert "the largest part" in text
    assert "mostly" not in text


def test_the_recorders_own_start_is_left_out_of_the_shares() -> None:
    """It takes 10 ms of 20; of the other 10 the device computes 9."""
    trace = TraceBuilder(launch_us=1, latency_us=0)
    with trace.step():
        trace.overhead("Activity Buffer Request", 10_000)
        trace.launch("gemm", 9_000)
        with trace.op("aten::mm"):
            trace.work(10_000)
            trace.launch("gemm", 1)
    text = verdict(trace)
    set_up = "not counting 50.0 % in which the recorder set itself up"
    assert text.startswith("Device-bound: the device spends 89.9 % of the time in computing.")
    assert f"idle for 10.1 %, mostly during one-time set-up (10.0 % of the time), {set_up}." in text


@pytest.mark.parametrize("device_us", [1, 1_000_000])
def test_it_says_whose_share_of_the_time_it_is(device_us: float) -> None:
    assert "It is busy" not in verdict(reading(device_us))


def test_waits_that_leave_the_device_idle_for_nothing_are_said_to_cost_nothing() -> None:
    assert "which costs the device next to nothing." in verdict(reading(1_000_000))
    assert "for 0 %" not in verdict(reading(1_000_000))


def test_waits_for_uploads_count_with_what_they_leave_idle() -> None:
    """Each is followed by 60 µs in which the host makes the next launch: of 1,160."""
    trace = TraceBuilder(launch_us=0, latency_us=0, enter_us=0)
    for _ in range(10):
        with trace.op("aten::to"):
            trace.copy("HtoD", 100, memory="Pageable")
            trace.work(60)
        with trace.op("aten::mm"):
            trace.launch("gemm", 1_000)
        trace.work(1_000)
    assert (
        "The host waits for the device for 9.4 % of the time. These waits make the device idle for 5.7 % of the time."
    ) in verdict(trace)


def test_what_computes_beside_copies_counts_for_the_longer_of_the_two() -> None:
    def beside(copy_us: float, kernel_us: float) -> str:
        trace = TraceBuilder(launch_us=0, latency_us=0, enter_us=0)
        trace.copy("HtoD", copy_us, stream=20)
        trace.launch("gemm", kernel_us)
        return verdict(trace)

    assert beside(100, 60) == (
        "Copy-bound: the device spends 100 % of the time in copies. The device is busy for 100 % of the time (40.0 % "
        "copying, 60.0 % computing and copying at once), and hardly ever idle."
    )
    assert beside(60, 100).startswith("Device-bound: the device spends 100 % of the time in computing.")


def test_idle_time_that_nothing_explains_has_no_cause() -> None:
    """The file has lost the calls that launched."""
    trace = TraceBuilder()
    for _ in range(3):
        trace.launch("gemm", 10)
        trace.work(1_000)
    text = judge(analyse(trace.timeline([event for event in trace.events if event["cat"] == "kernel"]))).text
    assert "the largest part of it" not in text
    assert "of the time cannot be explained" in text


@pytest.mark.parametrize(
    ("error_ns", "says"),
    [
        (0, "no resource by itself limits a step. The most is gained if the host took no time: 3.6 %."),
        (50, "no resource by itself limits a step, as far as the replay can tell."),
    ],
)
def test_a_resource_that_gains_little_limits_nothing(error_ns: int, says: str) -> None:
    """Two that gain as much as each other are no tie for what limits the run."""
    freed = Freed(1_000, {"host": 36, "startup": 31}, error_ns)
    said = judge(analyse(reading(100).timeline()), freed)
    assert says in said.text
    assert said.bound_by not in ("startup", "python", "launch")


def test_the_way_that_the_verdict_names_comes_first() -> None:
    freed = Freed(1_000, {"kernels": 481, "startup": 479, "host": 10}, 0)
    said = judge(analyse(reading(100).timeline()), freed)
    assert said.text.startswith(
        "Start-up: a step would be shorter by 47.9 % without one-time set-up (CUDA context, loading and choosing "
        "kernels) or by 48.1 % if kernels took no time."
    )


def test_work_that_fills_the_time_limits_it_though_its_launches_are_not_in_the_file() -> None:
    """A replay cannot shorten a wait for work that nobody launched."""
    trace = TraceBuilder(launch_us=1, latency_us=0)
    for _ in range(20):
        with trace.op("aten::mm"):
            trace.launch("gemm", 1000)
    trace.sync()
    for event in trace.events:
        if event.get("cat") == "kernel":
            del event["args"]["correlation"]
    run = analyse(trace.timeline())
    found = judge(run, Freed(step_ns=20_000_000, gains={"host": 200_000, "kernels": 0}, error_ns=0))
    assert found.bound_by == "device"
    assert "What less of it would gain cannot be told, as its launches are not in the file." in found.text
