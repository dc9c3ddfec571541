"""A full launch queue is back-pressure: explained, and no problem."""

from __future__ import annotations

import pytest
from findings import found, only, result_of
from traces import TraceBuilder


def far_ahead(launches: int, *, queue: int = 1022, kernel_us: float = 100) -> TraceBuilder:
    trace = TraceBuilder(queue=queue)
    with trace.frame("train.py", 12, "train"):
        for _ in range(launches):
            trace.launch("gemm", kernel_us)
    return trace


@pytest.mark.parametrize("launches", [1_200, 4_000])
def test_launches_beyond_the_queues_depth_block_and_that_is_harmless(launches: int) -> None:
    """A kernel is done every 100 µs, from when the queue is full on: those launches block, and no others."""
    finding = only(far_ahead(launches), "full-queue")
    done_by_then = 1022 * 5 // 100
    assert finding.count == pytest.approx(launches - 1022 - done_by_then, abs=3)
    assert finding.harmless
    assert finding.exposed_ns == 0


def test_the_verdict_is_the_devices() -> None:
    assert result_of(far_ahead(1_200)).verdict.bound_by == "device"


def test_with_room_in_the_queue_there_is_none() -> None:
    assert found(far_ahead(900), "full-queue") == []


def test_slow_launches_with_an_empty_queue_are_something_else() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(600):
            trace.launch("relu", 2)
        for _ in range(5):
            trace.launch("relu", 2, host_us=500)
    assert found(trace, "full-queue") == []
