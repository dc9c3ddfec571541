"""Uploads from pinned memory that wait all the same, because `non_blocking=True` is missing."""

from __future__ import annotations

from findings import found, only, place
from traces import Memory, TraceBuilder


def uploads(memory: Memory = "Pinned", *, non_blocking: bool) -> TraceBuilder:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 50)
        with trace.op("aten::to"), trace.op("aten::copy_"):
            trace.copy("HtoD", 100, memory=memory)
            if not non_blocking:
                trace.sync()
        with trace.op("aten::mm"):
            trace.launch("gemm", 200)
    return trace


def test_the_sync_behind_the_copy_is_the_wait() -> None:
    """From 0 µs: train 1, mm 1, launch 2-7; the kernel runs 9-59, the copy, called 10-15, 59-159. The sync takes
    15-159; two operators are left and one entered, and the next op is launched at 162-167 and starts at 169."""
    finding = only(uploads(non_blocking=False), "blocking-pinned-copy")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 144_000, 10_000)
    assert finding.edit == "pin-copies:train.py:12:aten::to"
    assert not finding.harmless


def test_with_non_blocking_there_is_none() -> None:
    assert found(uploads(non_blocking=True), "blocking-pinned-copy") == []


def test_a_pageable_copy_is_none() -> None:
    assert found(uploads("Pageable", non_blocking=False), "blocking-pinned-copy") == []


def test_a_wait_in_another_operator_is_not_the_copys() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::to"):
            trace.copy("HtoD", 100, memory="Pinned")
        trace.item()
    assert found(trace, "blocking-pinned-copy") == []
    assert only(trace, "sync-item").count == 1


def test_with_the_device_at_work_on_another_stream_it_is_harmless() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100_000, stream=20)
        with trace.op("aten::to"):
            trace.copy("HtoD", 10)
            trace.sync()
    finding = only(trace, "blocking-pinned-copy")
    assert (finding.harmless, finding.exposed_ns) == (True, 0)


def test_a_synchronous_call_blocks_whatever_the_memory() -> None:
    """The copy is called at 10 µs and runs 59-159, as above; nothing but the call waits."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 50)
        with trace.op("aten::to"), trace.op("aten::copy_"):
            trace.copy("HtoD", 100, memory="Pageable")
            for event in trace.events[-2:]:
                event["name"] = event["name"].replace("cudaMemcpyAsync", "cudaMemcpy").replace("Pageable", "Pinned")
        with trace.op("aten::mm"):
            trace.launch("gemm", 200)
    finding = only(trace, "blocking-pinned-copy")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 149_000, 10_000)
    assert "by cudaMemcpy, which returns when the copy is done" in finding.saw
    assert found(trace, "pageable-copy") == []
