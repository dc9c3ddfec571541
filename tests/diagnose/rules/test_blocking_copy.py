"""Uploads that block the host, of which the file does not say from what kind of memory they are."""

from __future__ import annotations

import pytest
from findings import found, only, place, result_of
from traces import Memory, TraceBuilder


def upload(trace: TraceBuilder, call: str, device_us: float, *, blocks: bool, direction: str = "HostToDevice") -> None:
    """A copy as ROCm's recorder names it."""
    memory: Memory = "Pageable" if blocks else "Pinned"
    trace.copy("HtoD" if direction == "HostToDevice" else "DtoH", device_us, memory=memory)
    names = {"cuda_runtime": call, "gpu_memcpy": f"Copy{direction}"}
    for event in trace.events[-2:]:
        event["name"] = names[event["cat"]]


def uploads(call: str, *, blocks: bool, device_us: float = 100, then_sync: bool = False) -> TraceBuilder:
    trace = TraceBuilder(devices=("AMD Instinct MI300X",))
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 50)
        with trace.op("aten::to"), trace.op("aten::copy_"):
            upload(trace, call, device_us, blocks=blocks)
            if then_sync:
                trace.sync(call="hipStreamSynchronize")
        with trace.op("aten::mm"):
            trace.launch("gemm", 200)
    return trace


@pytest.mark.parametrize("call", ["hipMemcpyWithStream", "hipMemcpyAsync"])
def test_a_call_that_lasts_as_long_as_its_copy_blocked(call: str) -> None:
    """The kernel runs 9-59 µs, the copy, called at 10, 59-159; the next op arrives 2 + 1 + 5 + 2 later."""
    finding = only(uploads(call, blocks=True), "blocking-copy")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 149_000, 10_000)
    assert call in finding.saw
    assert "the file does not say" in finding.saw
    assert finding.confidence == "medium"


def test_a_sync_behind_the_copy_is_its_wait() -> None:
    finding = only(uploads("hipMemcpyAsync", blocks=False, then_sync=True), "blocking-copy")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 144_000, 10_000)
    assert "hipStreamSynchronize" in finding.saw


def test_a_call_that_returns_at_once_did_not_block() -> None:
    rules = {finding.rule for finding in result_of(uploads("hipMemcpyAsync", blocks=False)).findings}
    assert rules.isdisjoint({"blocking-copy", "pageable-copy", "blocking-pinned-copy"})


def test_a_call_no_longer_than_calls_are_tells_nothing() -> None:
    """On an idle device a copy of 2 µs is done while its asynchronous call is still on its way back."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        upload(trace, "hipMemcpyAsync", 2, blocks=True)
    assert found(trace, "blocking-copy") == []


def test_a_download_is_a_wait_and_no_upload() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        upload(trace, "hipMemcpyWithStream", 100, blocks=True, direction="DeviceToHost")
    assert found(trace, "blocking-copy") == []
    assert only(trace, "sync-cpu").count == 1
