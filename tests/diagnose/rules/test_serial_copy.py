"""Copies on the computing stream with nothing computed beside them."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder


def offloaded(*, copy_stream: int) -> TraceBuilder:
    """Four layers: each brings its weights (40 µs) and computes (60 µs); the host is far ahead."""
    trace = TraceBuilder(launch_us=1)
    with trace.step(), trace.frame("model/net.py", 30, "forward"):
        for _ in range(4):
            with trace.op("aten::to"):
                trace.copy("HtoD", 40, stream=copy_stream, size=2_000_000)
            with trace.op("aten::mm"):
                trace.launch("gemm", 60)
    return trace


def test_copies_in_line_with_the_computation_cost_their_whole_length() -> None:
    finding = only(offloaded(copy_stream=7), "serial-copy")
    assert place(finding) == ("model/net.py", 30, "forward")
    assert (finding.where.op, finding.count) == ("aten::to", 4)
    assert finding.exposed_ns == 4 * 40_000
    assert finding.edit == "overlap-copies:model/net.py:30:aten::to"


def test_on_a_stream_of_their_own_they_are_not_serial() -> None:
    assert found(offloaded(copy_stream=20), "serial-copy") == []


def test_only_the_part_with_nothing_beside_it_counts() -> None:
    """The copy runs 9-109 µs on stream 7; a kernel on stream 20 runs beside it from 17 to 77."""
    trace = TraceBuilder()
    with trace.frame("model/net.py", 30, "forward"):
        with trace.op("aten::to"):
            trace.copy("HtoD", 100)
        with trace.op("aten::mm"):
            trace.launch("gemm", 60, stream=20)
        with trace.op("aten::mm"):
            trace.launch("gemm", 60)
    assert only(trace, "serial-copy").exposed_ns == 100_000 - 60_000


def test_copies_within_the_device_are_computation() -> None:
    trace = TraceBuilder()
    with trace.frame("model/net.py", 30, "forward"), trace.op("aten::copy_"):
        trace.copy("DtoD", 100)
        trace.launch("gemm", 100)
    assert found(trace, "serial-copy") == []


def test_copies_of_less_than_a_hundredth_of_the_time_are_not_worth_it() -> None:
    trace = TraceBuilder()
    with trace.frame("model/net.py", 30, "forward"), trace.op("aten::to"):
        trace.copy("HtoD", 10)
        trace.launch("gemm", 2_000)
    assert found(trace, "serial-copy") == []


def test_computation_on_another_device_is_not_beside_it() -> None:
    trace = TraceBuilder(devices=("first", "second"))
    with trace.frame("model/net.py", 30, "forward"):
        trace.launch("gemm", 1_000, device=1)
        with trace.op("aten::to"):
            trace.copy("HtoD", 100)
        with trace.op("aten::mm"):
            trace.launch("gemm", 60)
    assert only(trace, "serial-copy").exposed_ns == 100_000


def test_a_stream_of_the_same_number_on_another_device_is_another_stream() -> None:
    """Device 0 computes on stream 7 and copies on 20; device 1 computes on its stream 20."""
    trace = TraceBuilder(devices=("first", "second"))
    with trace.frame("model/net.py", 30, "forward"):
        trace.launch("gemm", 60)
        trace.launch("gemm", 60, stream=20, device=1)
        with trace.op("aten::to"):
            trace.copy("HtoD", 100, stream=20)
    assert found(trace, "serial-copy") == []


def test_of_a_graph_only_the_copies_count() -> None:
    """One launch of a kernel of 60 µs, of a copy of 100 and of a kernel of 60."""
    trace = TraceBuilder()
    with trace.frame("model/net.py", 30, "forward"):
        trace.graph([60, 100, 60])
    (copy,) = (event for event in trace.events if event["name"] == "graph_kernel_1")
    copy |= {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "args": copy["args"] | {"bytes": 2_000_000}}
    finding = only(trace, "serial-copy")
    assert (finding.count, finding.exposed_ns) == (1, 100_000)
    assert found(trace, "blocking-pinned-copy") == []
