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


def test_the_wait_is_what_launches_take_longer_than_usual() -> None:
    """The program ends when its last launch returns: 2000 kernels less those still queued, and 5 µs for each launch."""
    result = result_of(far_ahead(2_000))
    finding = next(each for each in result.findings if each.rule == "full-queue")
    waited = (2_000 - 1_022) * 100_000 - 2_000 * 5_000
    assert finding.explains
    assert finding.wait_ns * result.steps.count == pytest.approx(waited, rel=0.01)
    assert result.lines[0].wait_ns == finding.wait_ns
    assert "in launches, as the launch queue is full" in result.verdict.text


def test_short_kernels_fill_the_queue_too() -> None:
    """Each launch waits for a kernel of 15 µs: three times as long as it takes."""
    result = result_of(far_ahead(4_000, kernel_us=15))
    finding = next(each for each in result.findings if each.rule == "full-queue")
    assert finding.wait_ns * result.steps.count == pytest.approx((4_000 - 1_022) * 15_000 - 4_000 * 5_000, rel=0.02)


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
