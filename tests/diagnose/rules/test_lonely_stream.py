"""Work on another stream that runs while nothing else does."""

from __future__ import annotations

from findings import found, only, place
from traces import TraceBuilder


def two_streams(*, in_turn: bool, op: str = "aten::softmax", share: int | None = None) -> TraceBuilder:
    """A side stream's kernel of 80 µs in every step; in turn with the main one's of 100 µs, or beside it."""
    trace = TraceBuilder(launch_us=1)
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(5):
            with trace.frame("train.py", 20, "compute"):
                trace.launch("gemm", 50)
                trace.launch("gemm", 50)
            with trace.frame("train.py", 30, "aside"):
                if in_turn:
                    trace.stream_wait(trace.record(stream=7), stream=20)
                with trace.op(op):
                    trace.launch("softmax", 80, stream=20, share=share)
                if in_turn:
                    trace.stream_wait(trace.record(stream=20), stream=7)
    return trace


def test_a_second_stream_that_never_overlaps_is_found_at_what_launches_it() -> None:
    finding = only(two_streams(in_turn=True), "lonely-stream")
    assert place(finding) == ("train.py", 30, "aside")
    assert (finding.count, finding.exposed_ns) == (5, 5 * 80_000)
    assert "stream 20" in finding.saw


def test_several_streams_at_a_line_are_one_finding() -> None:
    """As gloo has a stream of its own for each collective."""
    trace = TraceBuilder(launch_us=1)
    with trace.step(), trace.frame("train.py", 12, "train"):
        for stream in (20, 24, 20, 24):
            trace.launch("gemm", 100)
            trace.launch("gemm", 100)
            trace.stream_wait(trace.record(stream=7), stream=stream)
            with trace.frame("train.py", 30, "aside"):
                trace.launch("softmax", 80, stream=stream)
            trace.stream_wait(trace.record(stream=stream), stream=7)
    finding = only(trace, "lonely-stream")
    assert (finding.count, finding.exposed_ns) == (4, 4 * 80_000)
    assert "4 ops on streams 20 and 24 take 320 µs, of which 0 % overlaps" in finding.saw


def test_kernels_that_fill_the_device_are_left_to_another_rule() -> None:
    assert found(two_streams(in_turn=True, share=1000), "lonely-stream") == []


def test_kernels_that_leave_room_could_overlap() -> None:
    finding = only(two_streams(in_turn=True, share=400), "lonely-stream")
    assert not finding.harmless
    assert finding.exposed_ns == 5 * 80_000


def test_one_that_overlaps_is_not() -> None:
    assert found(two_streams(in_turn=False), "lonely-stream") == []


def test_gradients_that_autograd_adds_up_on_a_stream_of_its_choice_are_not_the_programs_to_move() -> None:
    assert found(two_streams(in_turn=True, op="torch::autograd::AccumulateGrad"), "lonely-stream") == []


def test_one_stream_alone_is_not_lonely() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            trace.launch("gemm", 100)
    assert found(trace, "lonely-stream") == []


def test_the_streams_of_two_devices_need_not_overlap() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100, device=0)
        trace.sync(device=0)
        trace.launch("gemm", 100, device=1)
    assert found(trace, "lonely-stream") == []


def test_each_device_is_asked_for_itself() -> None:
    """Device 0's side stream takes turns with its main one, while device 1 is at work all the time."""
    trace = two_streams(in_turn=True)
    with trace.frame("train.py", 50, "elsewhere"):
        trace.launch("gemm", 1_000, device=1)
    finding = only(trace, "lonely-stream")
    assert place(finding) == ("train.py", 30, "aside")
    assert finding.exposed_ns == 5 * 80_000


def test_a_side_stream_on_each_of_two_devices_is_a_finding_each() -> None:
    trace = TraceBuilder(launch_us=1, devices=("first", "second"))
    with trace.frame("train.py", 12, "train"):
        for device in (0, 1):
            trace.launch("gemm", 50, device=device)
            trace.launch("gemm", 50, device=device)
            trace.stream_wait(trace.record(device=device), stream=20, device=device)
            trace.launch("softmax", 80, stream=20, device=device)
    findings = found(trace, "lonely-stream")
    assert [finding.exposed_ns for finding in findings] == [80_000, 80_000]


def test_a_graph_on_a_side_stream_is_its_ops() -> None:
    """Two kernels of 40 µs, 1 apart, behind one of 100 on the main stream."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 50)
        trace.launch("gemm", 30)
        trace.launch("gemm", 20)
    with trace.frame("train.py", 30, "aside"):
        trace.stream_wait(trace.record(), stream=20)
        trace.graph([40, 40], stream=20)
    finding = only(trace, "lonely-stream")
    assert place(finding) == ("train.py", 30, "aside")
    assert (finding.count, finding.exposed_ns) == (2, 80_000)


def test_a_line_whose_part_cannot_be_measured_needs_no_change() -> None:
    """Of a stream that is worth a word, one line has only half a µs of some 1,000."""
    trace = two_streams(in_turn=True)
    with trace.step(), trace.frame("train.py", 12, "train"), trace.frame("train.py", 40, "index"):
        trace.stream_wait(trace.record(stream=7), stream=20)
        trace.launch("index", 0.5, stream=20)
    harmless = {finding.where.line: finding.harmless for finding in found(trace, "lonely-stream")}
    assert harmless == {30: False, 40: True}
