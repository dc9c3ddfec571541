"""Streams that hand over to each other while the device idles."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder


def ping_pong(wake_us: float) -> TraceBuilder:
    """Two streams take turns with kernels of 50 µs; the host is far ahead of them."""
    trace = TraceBuilder(launch_us=1, wake_us=wake_us)
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100)
        for _ in range(4):
            for stream, other in ((20, 7), (7, 20)):
                trace.stream_wait(trace.record(stream=other), stream=stream)
                trace.launch("gemm", 50, stream=stream)
    return trace


def test_idle_time_behind_events_is_found_at_what_was_held() -> None:
    """Eight hand-overs of 10 µs each."""
    finding = only(ping_pong(10), "stream-wait")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.exposed_ns, finding.wait_ns) == (8, 80_000, 0)


def test_where_the_event_costs_nothing_there_is_none() -> None:
    assert found(ping_pong(0), "stream-wait") == []


def test_one_launch_is_told_as_one() -> None:
    trace = TraceBuilder(launch_us=1, wake_us=30)
    with trace.step(), trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100)
        trace.stream_wait(trace.record(stream=7), stream=20)
        trace.launch("gemm", 50, stream=20)
    assert only(trace, "stream-wait").saw.startswith("1 launch was held by an event")
