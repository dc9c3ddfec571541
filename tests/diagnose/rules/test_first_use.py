"""What only the first steps pay."""

from __future__ import annotations

from findings import found, only, place, result_of
from traces import TraceBuilder

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
    assert "cuModuleLoadData" in finding.saw
    assert finding.saw.startswith(
        "the device waited 5.01 ms in all (once, not in each step: the figure above is a mean over 4 steps); "
    )


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
