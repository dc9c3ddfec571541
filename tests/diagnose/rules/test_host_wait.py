"""A wait is found at its line and operator, with how long the host waited and how long the device then idled."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from findings import found, only, place, result_of
from traces import TraceBuilder

from unstall.result import Caller


def sync_findings(trace: TraceBuilder) -> list[str]:
    return [finding.rule for finding in result_of(trace).findings if finding.rule.startswith("sync-")]


def reads_its_loss(steps: int = 1, *, kernel_us: float = 200) -> TraceBuilder:
    trace = TraceBuilder()
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", kernel_us)
            trace.item()
            with trace.op("aten::add"):
                trace.launch("add", 500)
    return trace


def test_a_wait_is_as_long_as_its_call_and_exposes_the_idle_time_until_the_next_op_starts() -> None:
    """From 0 µs: step 3, train 1, mm 1, launch 5; the kernel runs 12-212, the copy 212-213, the wait 18-213.
    Leaving two operators, entering one and launching takes 8, latency 2: the next op starts at 223."""
    finding = only(reads_its_loss(), "sync-item")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.where.op, finding.where.line_is) == ("aten::item", "def")
    assert (finding.count, finding.wait_ns, finding.exposed_ns) == (1, 195_000, 10_000)
    assert finding.spans == ((18_000, 213_000),)
    assert finding.edit == "remove-syncs:train.py:12:aten::item"
    assert not finding.harmless


def test_waits_are_counted_over_the_window_and_cost_a_mean_per_step() -> None:
    finding = only(reads_its_loss(3), "sync-item")
    first, *later = (end - start for start, end in finding.spans)
    assert (finding.count, first) == (3, 195_000)
    assert finding.wait_ns == round((first + sum(later)) / 3)
    assert finding.exposed_ns == 10_000


def test_a_wait_with_work_queued_behind_what_it_waits_for_costs_nothing() -> None:
    """It waits for a side stream (copied 16-116 µs, waited for from 14) while the main one has work for far longer."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 5_000)
        with trace.op("aten::item"):
            trace.copy("DtoH", 100, size=4, stream=20)
            trace.sync(stream=20)
        with trace.op("aten::add"):
            trace.launch("add", 10)
    finding = only(trace, "sync-item")
    assert (finding.wait_ns, finding.exposed_ns) == (102_000, 0)
    assert finding.harmless


def test_two_kinds_of_wait_in_one_function_are_told_apart_by_operator() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for name in ("aten::item", "aten::is_nonzero", "aten::item"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
            with trace.op(name):
                trace.copy("DtoH", 1, size=4)
                trace.sync()
    assert [only(trace, rule).count for rule in ("sync-item", "sync-bool")] == [2, 1]


def test_the_same_wait_at_two_lines_makes_two_findings_each_with_its_caller() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 80, "main"):
        for line, name in ((12, "train"), (30, "evaluate")):
            with trace.frame("train.py", line, name):
                with trace.op("aten::mm"):
                    trace.launch("gemm", 100)
                trace.item()
    findings = found(trace, "sync-item")
    assert sorted(place(finding) for finding in findings) == [
        ("train.py", 12, "train"),
        ("train.py", 30, "evaluate"),
    ]
    callers = [finding.where.called_from for finding in findings]
    assert callers == 2 * [Caller(file="train.py", line=80, function="main")]


def test_a_wait_below_framework_code_is_at_the_users_line() -> None:
    trace = TraceBuilder()
    with trace.frame("model/net.py", 40, "forward"), trace.frame("torch/_tensor.py", 900, "__bool__"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
        trace.item()
    assert place(only(trace, "sync-item")) == ("model/net.py", 40, "forward")


@pytest.mark.parametrize(("file", "promised"), [("torch/nn/utils/rnn.py", False), ("net.py", True)])
def test_of_a_value_that_torchs_own_code_reads_no_gain_is_promised(file: str, promised: bool) -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.frame(file, 280, "pack"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
        trace.item()
    assert (only(trace, "sync-item").edit is not None) == promised


def test_without_stacks_a_wait_is_at_its_annotation() -> None:
    trace = TraceBuilder(stacks=False)
    with trace.annotation("forward pass"):
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
        trace.item()
    finding = only(trace, "sync-item")
    assert place(finding) == (None, None, "forward pass")
    assert finding.edit == "remove-syncs:-:-:aten::item"


def test_waits_before_the_first_step_do_not_count() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100)
        trace.item()
        with trace.step():
            trace.launch("gemm", 100)
    assert sync_findings(trace) == []


def test_a_program_that_only_launches_has_no_waits() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(5):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
    assert sync_findings(trace) == []


def test_the_wait_of_an_upload_is_the_copy_rules_business() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.op("aten::to"):
        trace.copy("HtoD", 100, memory="Pageable")
        trace.sync()
    assert sync_findings(trace) == []


def test_downloads_into_pageable_memory_are_waits() -> None:
    """The copy call itself blocks: 1 + 1 to enter, launched by 7, run 9-109."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        with trace.op("aten::to"):
            trace.copy("DtoH", 100, memory="Pageable")
        with trace.op("aten::mm"):
            trace.launch("gemm", 100)
    finding = only(trace, "sync-cpu")
    assert (finding.count, finding.wait_ns) == (1, 107_000)
    assert finding.exposed_ns == 1_000 + 1_000 + 5_000 + 2_000


def test_the_recorders_own_waits_are_not_the_programs() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.launch("gemm", 100)
        with trace.frame("torch/profiler/profiler.py", 700, "stop"):
            trace.sync("device")
    assert sync_findings(trace) == []


def reads_its_output(size: int) -> TraceBuilder:
    """A copy of this many bytes into pageable memory, for 200 µs a MB, after a kernel of 100 µs."""
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("infer.py", 5, "infer"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
            with trace.op("aten::to"):
                trace.copy("DtoH", 200 * size / 1e6, memory="Pageable", size=size)
            trace.work(20)
    return trace


def test_the_gain_of_data_copied_to_the_host_is_that_of_the_pinned_copy_which_it_advises() -> None:
    finding = only(reads_its_output(2_000_000), "sync-cpu")
    assert finding.edit == "read-later:infer.py:5:aten::to"
    assert finding.gain_ns is not None
    assert finding.gain_ns > 400_000 - 37_000 - 100_000


def test_a_few_bytes_copied_to_the_host_are_read_later_as_a_value_is() -> None:
    assert only(reads_its_output(1_000), "sync-cpu").edit == "remove-syncs:infer.py:5:aten::to"


def test_waits_at_several_places_of_libraries_are_told_with_the_commonest_first() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("write.py", 5, "write"):
            for line in (383, 269, 269):
                with trace.frame("torch/nn/utils.py", line, "check"), trace.op("aten::is_nonzero"):
                    trace.launch("gemm", 50)
                    trace.copy("DtoH", 1, size=1)
                    trace.sync()
    saw = only(trace, "sync-bool").saw
    assert "9 waits (6 in torch/nn/utils.py:269 check, 3 in torch/nn/utils.py:383 check) of " in saw


def test_a_mode_that_overrides_torchs_functions_is_no_place_of_a_wait() -> None:
    """As after torch.set_default_device."""
    trace = TraceBuilder()
    for _ in range(3):
        with (
            trace.step(),
            trace.frame("fit.py", 5, "fit"),
            trace.frame("torch/nn/utils.py", 366, "check"),
            trace.frame("torch/utils/_device.py", 122, "__torch_function__"),
            trace.op("aten::is_nonzero"),
        ):
            trace.launch("gemm", 50)
            trace.copy("DtoH", 1, size=1)
            trace.sync()
    assert "3 waits in torch/nn/utils.py:366 check of " in only(trace, "sync-bool").saw


def test_a_check_of_a_distributions_arguments_is_gone_with_all_that_it_launches() -> None:
    trace = TraceBuilder()
    check = "torch/distributions/distribution.py"
    for _ in range(4):
        with trace.step(), trace.frame("act.py", 5, "act"):
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
            with trace.frame("torch/distributions/normal.py", 50, "__init__"), trace.frame(check, 40, "__init__"):
                with trace.op("aten::all"):
                    trace.launch("all", 50)
                with trace.op("aten::is_nonzero"):
                    trace.copy("DtoH", 1, size=1)
                    trace.sync()
    finding = only(trace, "sync-validate")
    assert finding.edit == "leave-out:torch/distributions/distribution.py:__init__"
    assert "validate_args=False" in finding.fix
    assert "waits in torch/distributions/distribution.py:40 __init__" in finding.saw
    assert finding.gain_ns is not None
    assert finding.gain_ns > 50_000


def waits_within(*frames: str) -> TraceBuilder:
    trace = TraceBuilder()
    with ExitStack() as stack:
        stack.enter_context(trace.frame("train.py", 12, "train"))
        for frame in frames:
            stack.enter_context(trace.named_frame(frame))
        with trace.op("aten::mm"):
            trace.launch("gemm", 300)
        with trace.named_frame("torch/cuda/__init__.py(1219): synchronize"):
            trace.sync("device")
        with trace.op("aten::mm"):
            trace.launch("gemm", 300)
    return trace


@pytest.mark.parametrize("folder", ["", "/opt/lib/python3.12/site-packages/"])
def test_what_unstalls_own_helpers_wait_for_is_nobodys_to_remove(folder: str) -> None:
    trace = waits_within(
        "unstall/fix/graphs/serving.py(90): __call__", f"{folder}unstall/fix/graphs/verify.py(40): time"
    )
    assert not sync_findings(trace)


@pytest.mark.parametrize("within", ["mine.py(3): forward", "torch/nn/modules/rnn.py(9): forward"])
def test_what_a_function_waits_for_that_unstall_calls_is_the_programs(within: str) -> None:
    assert sync_findings(waits_within("unstall/fix/graphs/serving.py(90): __call__", within)) == ["sync-explicit"]


def test_a_promise_that_is_read_too_early_is_a_wait_of_the_programs() -> None:
    assert sync_findings(waits_within("unstall/fix/to_host.py(60): HostFuture.result")) == ["sync-explicit"]
