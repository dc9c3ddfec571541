"""What only the first steps pay."""

from __future__ import annotations

import re

import pytest
from findings import found, only, place, result_of
from report.rendered import as_text
from traces import TraceBuilder

from unstall.document import terminal
from unstall.report.short import document as short

STEPS = 4


def test_loading_a_module_in_the_first_step_is_first_use() -> None:
    """The device waits from the step's start: 3 µs on the way in, 5,000 of loading, 5 to launch, 2 to arrive."""
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            if step == 0:
                trace.call("cuModuleLoadData", 5_000, category="cuda_driver")
            trace.launch("gemm", 500)
    finding = only(trace, "first-use")
    assert place(finding) == ("train.py", 12, "train")
    assert (finding.count, finding.wait_ns) == (1, 0)
    assert finding.exposed_ns == 5_010_000 / STEPS
    assert finding.saw == "the device waited for the first calls of cuModuleLoadData (5.01 ms)"


@pytest.mark.parametrize("kernels", [40, 60])
def test_a_first_use_in_the_only_launch_of_a_thread_is_one_however_much_other_threads_launch(kernels: int) -> None:
    """As in a backward pass at the end, on autograd's thread."""
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        for _ in range(kernels):
            trace.launch("gemm", 5)
        with trace.backward("MulBackward0", 1):
            trace.call("cuLibraryLoadData", 50_000, category="cuda_driver")
            trace.launch("mul", 5)
        trace.sync()
    assert found(trace, "python-bound") == []
    assert only(trace, "first-use").exposed_ns > 49_000_000


def test_while_one_thread_loads_a_module_a_wait_of_another_is_not_to_blame() -> None:
    trace = TraceBuilder()
    with trace.frame("serve.py", 12, "predict"):
        trace.launch("gemm", 500)
        with trace.on_thread(7, wait=False):
            trace.call("cuLibraryLoadData", 50_000, category="cuda_driver")
            trace.launch("relu", 500)
        trace.sync()
        trace.work(50_000)
        trace.sync()
    assert found(trace, "sync-device") == found(trace, "sync-stream") == []
    assert only(trace, "first-use").exposed_ns > 49_000_000


def test_what_most_steps_set_up_is_not_paid_once() -> None:
    for loading in range(STEPS + 1):
        trace = TraceBuilder()
        for step in range(STEPS):
            with trace.step(), trace.frame("decode.py", 12, "step"):
                if step < loading:
                    trace.call("cuLibraryLoadData", 50_000, category="cuda_driver")
                trace.launch("attention", 500)
        recurs = loading > STEPS // 2
        for finding in found(trace, "first-use"):
            assert (finding.once, finding.harmless) == (not recurs, not recurs)
            assert finding.title.startswith("Each step has" if recurs else "First use")
            assert ("enable_cudnn_sdp(False)" in finding.fix) == recurs


def loads_once_and_reads_in_each_step() -> TraceBuilder:
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            if step == 0:
                trace.call("cuModuleLoadData", 50_000, category="cuda_driver")
            trace.launch("gemm", 500)
            with trace.frame("log.py", 7, "log"), trace.op("aten::item"):
                trace.item()
            trace.work(200)
    return trace


def test_what_is_paid_once_stands_apart_from_what_each_step_pays() -> None:
    result = result_of(loads_once_and_reads_in_each_step())
    (once,) = (finding for finding in result.findings if finding.once)
    assert (once.rule, once.harmless) == ("first-use", True)
    assert once.exposed_ns > max(finding.exposed_ns for finding in result.costly)
    full = as_text(result)
    assert "1. .item()" in full
    paid = full[full.index("Paid once, not by each step: times in all") :]
    assert re.match(
        r".*exposed  host waits\nFirst use sets up CUDA, libraries or kernels · train.py:12 +50\.0 ms +0\ndef train\n",
        paid,
    )


def test_the_short_report_has_one_line_for_what_is_paid_once() -> None:
    lines = terminal.render(short(result_of(loads_once_and_reads_in_each_step())), top=10, width=80).splitlines()
    assert "paid once: 50.0 ms of idle time at train.py:12" in lines
    (first,) = (line for line in lines if line.startswith("1. "))
    assert first.startswith("1. log.py:7 from train.py:12: .item()")


def test_a_run_that_only_sets_up_has_no_finding_that_each_step_pays() -> None:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"):
        trace.call("cuModuleLoadData", 50_000, category="cuda_driver")
        trace.launch("gemm", 5_000)
    assert "No finding that each step pays." in as_text(result_of(trace))


def test_an_operator_that_is_slow_in_the_first_step_alone_is_first_use() -> None:
    """cuDNN tries its algorithms: 20 ms in the first step, and 10 µs in later ones."""
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"), trace.op("aten::cudnn_convolution"):
            trace.work(20_000 if step == 0 else 10)
            trace.launch("conv", 500)
    finding = only(trace, "first-use")
    assert finding.where.op == "aten::cudnn_convolution"
    assert 20_000_000 <= STEPS * finding.exposed_ns <= 20_020_000


def test_an_operator_that_is_slow_in_every_step_is_not() -> None:
    trace = TraceBuilder()
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"), trace.op("aten::cudnn_convolution"):
            trace.work(20_000)
            trace.launch("conv", 500)
    assert found(trace, "first-use") == []


def test_each_operator_is_compared_with_itself() -> None:
    """One is slow in the first step alone, another always, and a third never."""
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            for name, us in (("aten::add", 10), ("aten::mm", 20_000 if step == 0 else 10), ("aten::sort", 20_000)):
                with trace.op(name):
                    trace.work(us)
                    trace.launch(name, 5)
    assert only(trace, "first-use").where.op == "aten::mm"


def test_the_recorders_own_start_is_not_the_programs_first_use() -> None:
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"), trace.op("aten::mm"):
            if step == 0:
                trace.overhead("Activity Buffer Request", 5_000)
            trace.launch("gemm", 500)
    assert found(trace, "first-use") == []


def test_the_first_step_is_told_apart_from_the_steady_state_in_the_accounts() -> None:
    trace = TraceBuilder()
    for step in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"), trace.op("aten::mm"):
            if step == 0:
                trace.call("cuModuleLoadData", 5_000, category="cuda_driver")
            trace.launch("gemm", 500)
    idle = result_of(trace).accounts.idle_ns
    assert idle.startup == 5_011_000
    assert idle.python == idle.sync == 0
