"""Kernels on two streams that leave each other no room, if their shares of the device are known."""

from __future__ import annotations

import pytest
from findings import found, only, place
from traces import TraceBuilder


def two_streams(share: int | None, *, in_turn: bool, other: int | None = None) -> TraceBuilder:
    """In each of 5 rounds a kernel of 100 us, and one of 90 us on a side stream: after it, or beside it."""
    trace = TraceBuilder(launch_us=1)
    with trace.step(), trace.frame("train.py", 12, "train"):
        for _ in range(5):
            trace.launch("gemm", 50, share=share if other is None else other)
            trace.launch("gemm", 50, share=share if other is None else other)
            with trace.frame("train.py", 30, "aside"), trace.op("aten::mm"):
                if in_turn:
                    trace.stream_wait(trace.record(stream=7), stream=20)
                trace.launch("gemm", 90, stream=20, share=share)
                if in_turn:
                    trace.stream_wait(trace.record(stream=20), stream=7)
    return trace


@pytest.mark.parametrize("in_turn", [False, True])
def test_two_kernels_that_fill_the_device_gain_nothing_by_streams(in_turn: bool) -> None:
    finding = only(two_streams(1000, in_turn=in_turn), "full-device")
    assert place(finding) == ("train.py", 30, "aside")
    assert finding.harmless
    assert finding.explains
    assert (finding.count, finding.exposed_ns, finding.wait_ns) == (5, 0, 0)
    assert (
        "each gemm takes 50.0 µs alone and uses 100 % of the device, so there is no room for another kernel"
        in finding.saw
    )


def test_kernels_that_leave_room_or_whose_shares_are_not_known_make_no_claim() -> None:
    for share in (400, None):
        assert found(two_streams(share, in_turn=False), "full-device") == []
        assert found(two_streams(share, in_turn=True), "full-device") == []


def test_a_small_kernel_that_does_run_beside_a_full_one_is_not_told_that_it_cannot() -> None:
    assert found(two_streams(100, other=1000, in_turn=False), "full-device") == []
    assert len(found(two_streams(100, other=1000, in_turn=True), "full-device")) == 1


def test_one_stream_has_no_other() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            trace.launch("gemm", 100, share=1000)
    assert found(trace, "full-device") == []
