"""Uploads from pageable memory block the host, whatever `non_blocking` says."""

from __future__ import annotations

import pytest
from findings import found, only, place, result_of
from traces import Memory, TraceBuilder

from unstall.report.explain import often


def uploads(memory: Memory, *, steps: int = 1, device_us: float = 100) -> TraceBuilder:
    """Per step: a kernel of 50 µs, an upload behind it, and a kernel of 200 µs that uses it."""
    trace = TraceBuilder()
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 50)
            with trace.op("aten::to"), trace.op("aten::copy_"):
                trace.copy("HtoD", device_us, memory=memory, size=4_000_000)
                trace.sync()
            with trace.op("aten::mm"):
                trace.launch("gemm", 200)
    return trace


def test_the_call_and_the_sync_behind_it_are_the_wait() -> None:
    """From 0 µs: step 3, train 1, mm 1, launch 5 and out again: 11. The kernel runs 12-62, the copy 62-162.
    Its call blocks 13-162, the sync takes 1; the next op is launched at 171 and starts at 173."""
    finding = only(uploads("Pageable"), "pageable-copy")
    assert place(finding) == ("train.py", 12, "train")
    assert finding.where.op == "aten::to"
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 150_000, 11_000)
    assert finding.edit == "pin-copies:train.py:12:aten::to"
    assert not finding.harmless


def test_uploads_are_counted_over_the_window() -> None:
    finding = only(uploads("Pageable", steps=4), "pageable-copy")
    assert finding.count == 4
    assert finding.exposed_ns == 11_000


def test_uploads_of_the_first_step_alone_are_not_said_to_be_of_each() -> None:
    """A model is set up at its beginning: as many uploads as there are steps."""
    trace = TraceBuilder()
    for step in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for _ in range(4 if step == 0 else 0):
                with trace.op("aten::to"), trace.op("aten::copy_"):
                    trace.copy("HtoD", 100, memory="Pageable", size=4_000_000)
                    trace.sync()
            trace.launch("gemm", 50)
    finding = only(trace, "pageable-copy")
    assert (finding.count, finding.steps_seen) == (4, 1)
    assert often(result_of(trace), finding) == "4x in 1 of 4 steps"


def test_what_was_copied_and_how_fast_is_said() -> None:
    assert "1 upload, 3.81 MiB in all, at 40.0 GB/s" in only(uploads("Pageable"), "pageable-copy").saw


def test_pinned_uploads_are_none() -> None:
    assert found(uploads("Pinned"), "pageable-copy") == []


def test_a_pageable_download_is_a_wait_and_no_upload() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        trace.copy("DtoH", 100, memory="Pageable")
    assert found(trace, "pageable-copy") == []


def test_a_tensor_made_from_python_values_is_another_rules_business() -> None:
    trace = TraceBuilder()
    with (
        trace.frame("train.py", 12, "train"),
        trace.named_frame("<built-in method tensor of type object at 0x7f00>"),
        trace.op("aten::to"),
    ):
        trace.copy("HtoD", 100, memory="Pageable")
        trace.sync()
    assert found(trace, "pageable-copy") == []
    assert only(trace, "sync-tensor").count == 1


def test_an_upload_that_leaves_the_device_at_work_is_harmless() -> None:
    """The device has 100 ms of work on another stream: a copy of 10 µs beside it is nothing."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100_000, stream=20)
        with trace.op("aten::to"):
            trace.copy("HtoD", 10, memory="Pageable")
            trace.sync()
    finding = only(trace, "pageable-copy")
    assert finding.harmless
    assert finding.exposed_ns == 0


def made_anew(*operators: str, size: int = 1_000) -> TraceBuilder:
    """Operators on the host, an upload, and a kernel."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for operator in operators:
                with trace.op(operator):
                    trace.work(3)
            with trace.op("aten::to"):
                trace.copy("HtoD", 2, memory="Pageable", size=size)
                trace.sync()
            with trace.op("aten::relu"):
                trace.launch("relu", 5)
    return trace


def test_a_small_tensor_that_is_made_in_each_step_is_to_be_made_on_the_device() -> None:
    finding = only(made_anew("aten::empty", "aten::lift_fresh"), "pageable-copy")
    assert finding.edit == "make-on-device:train.py:12:aten::to"
    assert "pinning it each time costs more than it saves" in finding.fix


def test_a_large_one_is_to_be_copied_into_a_pinned_buffer_that_is_kept() -> None:
    finding = only(made_anew("aten::stack", size=1_000_000), "pageable-copy")
    assert finding.edit == "reuse-pinned:train.py:12:aten::to"


def test_a_view_of_what_is_there_already_is_to_be_pinned_once() -> None:
    finding = only(made_anew("aten::select", size=1_000_000), "pageable-copy")
    assert finding.edit == "pin-copies:train.py:12:aten::to"
    assert finding.fix.startswith("pin the source")


def test_a_small_copy_of_what_is_there_already_needs_no_pinned_memory() -> None:
    finding = only(made_anew("aten::select"), "pageable-copy")
    assert finding.edit == "pin-copies:train.py:12:aten::to"
    assert finding.fix.startswith("pass non_blocking=True")
    assert "unless non_blocking=True" in finding.saw


def from_a_loader(loader: str, *operators: str, size: int = 1_000_000) -> TraceBuilder:
    """A batch from a DataLoader, which makes a tensor for it here, operators on the host, an upload, and a kernel."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.annotation(f"enumerate(DataLoader)#{loader}.__next__"), trace.op("aten::empty"):
                trace.work(3)
            for operator in operators:
                with trace.op(operator):
                    trace.work(3)
            with trace.op("aten::to"):
                trace.copy("HtoD", 20, memory="Pageable", size=size)
                trace.sync()
            with trace.op("aten::relu"):
                trace.launch("relu", 5)
    return trace


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_batches_that_workers_make_are_to_be_pinned_by_the_loader(size: int) -> None:
    finding = only(from_a_loader("_MultiProcessingDataLoaderIter", "aten::detach", size=size), "pageable-copy")
    assert finding.edit == "pin-copies:train.py:12:aten::to"
    assert finding.fix.startswith("DataLoader(pin_memory=True)")


def test_batches_that_are_made_in_this_process_need_a_worker_to_be_pinned_aside() -> None:
    finding = only(from_a_loader("_SingleProcessDataLoaderIter"), "pageable-copy")
    assert finding.edit == "reuse-pinned:train.py:12:aten::to"
    assert finding.fix.startswith("DataLoader(num_workers=1 or more, pin_memory=True)")


@pytest.mark.parametrize("loader", ["_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"])
def test_what_the_program_makes_of_a_batch_is_to_be_made_on_the_device(loader: str) -> None:
    finding = only(from_a_loader(loader, "aten::stack"), "pageable-copy")
    assert finding.edit == "reuse-pinned:train.py:12:aten::to"
    assert finding.fix.startswith("the tensor is made on the host from a DataLoader's batch: copy the batch itself")
