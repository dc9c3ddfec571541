"""The figures of an entry, from its report."""

from __future__ import annotations

from traces import TraceBuilder

from unstall.auditing.figures_of import figures_of
from unstall.auditing.result import Figures
from unstall.diagnose.explain import explain


def _figures(trace: TraceBuilder) -> Figures:
    return figures_of(explain(trace.timeline()).result)


def _reading(trace: TraceBuilder, steps: int, *, reads: int = 1, kernel_us: float = 200) -> Figures:
    for _ in range(steps):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", kernel_us)
            for _ in range(reads):
                trace.item()
    return _figures(trace)


def test_counts_are_means_per_step() -> None:
    figures = _reading(TraceBuilder(), 4, reads=3)
    assert (figures.steps, figures.launches, figures.copies) == (4, 4.0, 3.0)
    assert [(wait.where.line, wait.per_step, wait.is_wait) for wait in figures.waits] == [(12, 3.0, True)]


def test_a_wait_that_costs_nothing_is_listed_and_gains_nothing() -> None:
    """The device still works through a long kernel when the host has waited for a copy on another stream."""
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 5_000, stream=7)
            trace.item(stream=9)
    figures = _figures(trace)
    (wait,) = figures.waits
    assert (wait.per_step, wait.gain_ns) == (1.0, 0)


def test_a_wait_that_costs_something_gains_what_the_replay_says() -> None:
    trace = TraceBuilder()
    for _ in range(4):
        with trace.step(), trace.frame("train.py", 12, "train"):
            trace.launch("gemm", 200)
            trace.item()
            trace.work(100)
    figures = _figures(trace)
    (wait,) = figures.waits
    assert wait.gain_ns is not None
    assert 50_000 < wait.gain_ns < 150_000
    assert figures.mended_ns <= figures.step_ns - wait.gain_ns
    assert figures.gain >= wait.gain_ns / figures.step_ns


def test_an_upload_that_blocks_is_a_wait_and_one_that_does_not_is_none() -> None:
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step():
            with trace.frame("train.py", 12, "train"):
                trace.copy("HtoD", 100, memory="Pageable")
            with trace.frame("train.py", 20, "ahead"):
                trace.copy("HtoD", 100, memory="Pinned")
            trace.launch("gemm", 200)
    assert [wait.where.line for wait in _figures(trace).waits] == [12]


def test_a_run_without_steps_says_so() -> None:
    trace = TraceBuilder()
    with trace.frame("eval.py", 3, "main"):
        trace.launch("gemm", 100)
    assert _figures(trace).caveats == ("no steps were found, so the figures are of the whole run",)


def test_the_idle_share_is_of_all_causes() -> None:
    """A kernel of 100 µs in each step of 400 µs or so: the host works for the rest."""
    trace = TraceBuilder()
    for _ in range(3):
        with trace.step():
            trace.launch("gemm", 100)
            trace.sync()
            trace.work(300)
    assert 0.7 < _figures(trace).idle < 0.8
