"""Each wait for an upload is one finding's: that of the copy it waited for."""

from __future__ import annotations

from findings import found, only
from traces import TraceBuilder


def two_uploads() -> TraceBuilder:
    """One operator with an upload of 100 µs from pageable memory, one of 200 µs from pinned, and a wait for both."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 50)
        with trace.op("aten::copy_"):
            trace.copy("HtoD", 100, memory="Pageable")
            trace.copy("HtoD", 200, memory="Pinned")
            trace.sync()
        with trace.op("aten::mm"):
            trace.launch("gemm", 50)
    return trace


def test_a_wait_is_for_the_last_copy_before_it_in_its_operator() -> None:
    """The first kernel runs 9-59 µs. The pageable copy is called at 9 and runs 59-159; the pinned one, called at
    159-164, runs 166-366; the sync takes 164-366, and the next op starts 9 later."""
    pageable, pinned = only(two_uploads(), "pageable-copy"), only(two_uploads(), "blocking-pinned-copy")
    assert (pageable.wait_ns, pinned.wait_ns) == (150_000, 202_000)
    assert (pageable.exposed_ns, pinned.exposed_ns) == (7_000, 9_000)


def test_a_sync_after_a_download_is_not_the_uploads() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        trace.copy("HtoD", 10)
        trace.copy("DtoH", 10)
        trace.sync()
    assert found(trace, "blocking-pinned-copy") == []
    assert only(trace, "sync-cpu").count == 1


def test_a_sync_before_the_upload_is_not_the_uploads() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        trace.launch("gemm", 50)
        trace.sync()
        trace.copy("HtoD", 10)
    assert found(trace, "blocking-pinned-copy") == []
    assert only(trace, "sync-cpu").count == 1


def test_a_copy_in_line_leaves_its_wait_to_the_rule_of_its_memory() -> None:
    """The first upload is called at 2 µs and done at 49; each other is called before a kernel of 60, and takes 40."""
    trace = TraceBuilder()
    with trace.frame("model/net.py", 30, "forward"):
        for _ in range(4):
            with trace.op("aten::to"):
                trace.copy("HtoD", 40, memory="Pageable")
            with trace.op("aten::mm"):
                trace.launch("gemm", 60)
    assert only(trace, "serial-copy").wait_ns == 0
    assert only(trace, "pageable-copy").wait_ns == 47_000 + 3 * 100_000  # one call of `forward` is one step
