"""The host computes something that dispatches nothing, and the device waits."""

from __future__ import annotations

from findings import found, only, place, result_of
from traces import TraceBuilder

STEPS = 3


def pausing(us: float, *, stacks: bool = True, kernel_us: float = 50) -> TraceBuilder:
    trace = TraceBuilder(stacks=stacks)
    for _ in range(STEPS):
        with trace.step(), trace.frame("train.py", 12, "train"):
            with trace.op("aten::mm"):
                trace.launch("gemm", kernel_us)
            with trace.frame("data.py", 7, "tokenize"):
                trace.work(us)
            with trace.op("aten::relu"):
                trace.launch("relu", kernel_us)
    return trace


def test_the_function_that_ran_meanwhile_is_named() -> None:
    """The second kernel of a step starts 509 µs after the first was to (500 of work, 9 in and out of functions and
    operators and to launch), which ran for 50 of them; from the second step on it ran 36 later, behind the last one."""
    finding = only(pausing(500), "python-bound")
    assert place(finding) == ("data.py", 7, "tokenize")
    assert finding.where.called_from
    assert finding.where.called_from.function == "train"
    assert (finding.count, finding.exposed_ns) == (STEPS, (459_000 + 2 * 423_000) / STEPS)


def test_the_verdict_is_python() -> None:
    assert result_of(pausing(500)).verdict.bound_by == "python"


def test_without_stacks_it_is_at_what_was_launched_next() -> None:
    finding = only(pausing(500, stacks=False), "python-bound")
    assert place(finding) == (None, None, "aten::relu")


def test_pauses_of_less_than_a_tenth_of_a_millisecond_are_dispatch() -> None:
    trace = pausing(80)
    assert found(trace, "python-bound") == []
    assert result_of(trace).accounts.idle_ns.python == 0


def test_pauses_that_the_device_works_through_are_not_found() -> None:
    assert found(pausing(500, kernel_us=2_000), "python-bound") == []
