"""How much work in a step the virtual clock does not charge."""

from __future__ import annotations

import sys

import pytest
from virtual.simulate.runs import begin

from unstall.virtual.log import NO_PYTHON, LogCode
from unstall.virtual.timeline.free_work import with_free_work

MS = 1_000_000


@pytest.mark.parametrize(("host", "usual"), [("modelled", 5 * MS), ("measured", None)])
def test_it_is_that_of_the_usual_step_without_set_up_and_the_first(host: str, usual: int | None) -> None:
    log, simulator = begin(host=host)
    log.launch(1_000)
    log.host_ns += 3_000 * MS  # before the steps
    for step, took in enumerate((700, 5, 5, 5, 5, 90, 5, 5)):  # in one of them, another process has the CPU
        with log.mark(f"ProfilerStep#{step}"):
            log.launch(1_000)
            log.host_ns += took * MS
            log.launch(1_000)
    meta = with_free_work(simulator.timeline(), simulator, 0).meta
    assert meta.free_work_ns == (usual if usual is None else pytest.approx(usual, rel=0.01))


def test_without_steps_nothing_is_known() -> None:
    log, simulator = begin()
    log.launch(1_000)
    log.host_ns += 5 * MS
    log.launch(1_000)
    assert with_free_work(simulator.timeline(), simulator, 0).meta.free_work_ns is None


def test_waiting_for_autograd_s_threads_is_no_work() -> None:
    log, simulator = begin()
    for step in range(4):
        with log.mark(f"ProfilerStep#{step}"):
            log.launch(1_000)
            log.host_ns += 5 * MS  # the main thread waits while another one computes gradients
            log.thread, log.stack = 1, NO_PYTHON
            with log.op("MulBackward0", step, 0):
                log.launch(1_000)
            log.thread, log.stack = 0, -1
            log.launch(1_000)
    assert with_free_work(simulator.timeline(), simulator, 0).meta.free_work_ns is None


def test_work_of_a_thread_that_is_joined_counts_as_far_as_the_main_thread_waits_for_it() -> None:
    log, simulator = begin()
    log.frames.append([(sys._getframe().f_code, 0)])
    log.stack = 0
    for step in range(4):
        with log.mark(f"ProfilerStep#{step}"):
            log.launch(1_000)
            started = log.host_ns
            log.write(LogCode.GIVE, started)
            log.host_ns += 2 * MS  # both threads work
            log.launch(1_000)
            log.host_ns += 3 * MS
            log.thread = step + 1
            log.write(LogCode.TAKE, started)
            ended = log.host_ns
            log.write(LogCode.GIVE, ended)
            log.thread = 0
            log.write(LogCode.TAKE, ended)
            log.launch(1_000)
    usual = with_free_work(simulator.timeline(), simulator, 0).meta.free_work_ns
    assert usual == pytest.approx(5 * MS, rel=0.01)
