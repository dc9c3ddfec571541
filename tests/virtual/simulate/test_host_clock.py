"""The host's time: modelled, measured, and mixed. The real clock is the log's, so that tests take no time."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.simulate.logs import HOST, Log
from virtual.simulate.runs import begin

from unstall.virtual.log import LogCode
from unstall.virtual.simulation.mixed_host import MixedHost
from unstall.virtual.simulation.simulator import Simulator

SECOND = 1_000_000_000


def _passed(log: Log, simulator: Simulator, act: Any) -> int:
    """The virtual ns between two reads of the clock, without the cost of reading it."""
    before = simulator.now_ns()
    act()
    return simulator.now_ns() - before - HOST.clock_read


def _works(log: Log, ns: int) -> Any:
    """What the program does for `ns` outside of torch."""

    def work() -> None:
        log.host_ns += ns

    return work


def _python(log: Log) -> None:
    """Stacks 0 and 1: ten units of bytecode lie between them."""
    code = (lambda: None).__code__
    log.frames = [[(code, 0)], [(code, 20)]]
    log.stack = 0


def _operator(log: Log, ns: int, *, on_host: bool, modelled_ns: int = 7_000) -> Any:
    def act() -> None:
        with log.op("aten::mul", on_host=on_host):
            log.host_ns += ns
            if on_host:
                log.work(modelled_ns)
            else:
                log.launch(1_000)

    return act


def test_what_the_cpu_computes_takes_time() -> None:
    log, simulator = begin()
    took = _passed(log, simulator, _operator(log, SECOND, on_host=True, modelled_ns=7_000))
    assert took == HOST.operator + 7_000 + HOST.operator_end


def test_and_less_by_more_threads() -> None:
    log, simulator = begin()
    took = _passed(log, simulator, lambda: log.work(8_000, threads=2))
    assert took == 4_000


def test_python_before_a_read_of_the_clock_takes_time_once() -> None:
    log, simulator = begin()
    _python(log)
    simulator.now_ns()

    def moves() -> None:
        log.stack = 1

    assert _passed(log, simulator, moves) == 10 * HOST.bytecode
    assert _passed(log, simulator, lambda: None) == 0
    assert _passed(log, simulator, lambda: log.write(LogCode.ADVANCE)) == 0


def test_modelled_time_is_not_by_the_real_clock() -> None:
    log, simulator = begin()
    assert _passed(log, simulator, _works(log, SECOND)) == 0


def test_but_a_note_says_how_long_the_program_took_here_and_where() -> None:
    log, simulator = begin()
    _python(log)
    simulator.now_ns()
    log.host_ns += SECOND
    log.stack = 1
    simulator.now_ns()
    log.host_ns += SECOND // 2
    log.launch(1_000)
    note = simulator.timeline().meta.notes[0]
    assert "1.50 s, 1.00 s of it at" in note
    assert "test_host_clock.py:" in note


def test_what_unstall_itself_does_is_no_work_of_the_program() -> None:
    log, simulator = begin()
    log.launch(1_000)
    simulator.now_ns()
    with simulator.own_work():
        log.host_ns += SECOND
    log.launch(1_000)
    assert "here it took" not in simulator.timeline().meta.notes[0]


def test_no_amount_is_told_of_a_program_that_is_all_modelled() -> None:
    log, simulator = begin()
    log.launch(1_000)
    assert "here it took" not in simulator.timeline().meta.notes[0]


@pytest.mark.parametrize("host", ["measured", "mixed"])
def test_the_clock_moves_while_the_host_works(host: str) -> None:
    log, simulator = begin(host=host)
    log.launch(1_000)
    simulator.now_ns()
    assert _passed(log, simulator, _works(log, SECOND // 3)) == SECOND // 3
    assert _passed(log, simulator, _works(log, SECOND // 3)) == SECOND // 3


@pytest.mark.parametrize("host", ["measured", "mixed"])
def test_work_before_a_read_is_not_charged_to_the_next_call_too(host: str) -> None:
    log, simulator = begin(host=host)
    log.launch(1_000)
    log.host_ns += SECOND
    simulator.now_ns()

    def sleeps() -> None:
        log.host_ns += SECOND // 2
        log.write(LogCode.ADVANCE, SECOND // 2)

    assert SECOND // 2 <= _passed(log, simulator, sleeps) <= SECOND // 2 + 2_000


def test_measured_time_has_nothing_of_the_simulation() -> None:
    log, simulator = begin(host="measured")
    taking = log.take

    def slow_take() -> tuple[bytes, bytes, bytes]:
        log.host_ns += SECOND
        return taking()

    log.take = slow_take  # type: ignore[method-assign]
    simulator.now_ns()
    assert _passed(log, simulator, lambda: log.launch(1_000)) < 10_000
    log.launch(1_000)
    simulator.drain()
    assert _passed(log, simulator, lambda: log.launch(1_000)) < 10_000


def _mixed(scale: float) -> tuple[Log, Simulator]:
    log, simulator = begin(host="mixed")
    assert isinstance(simulator.simulation.clock, MixedHost)
    simulator.simulation.clock.scale = scale
    return log, simulator


def test_mixed_scales_what_it_measures() -> None:
    log, simulator = _mixed(2.5)
    simulator.now_ns()
    assert _passed(log, simulator, _works(log, SECOND)) == 2.5 * SECOND
    note = simulator.timeline().meta.notes[0]
    assert "times 2.5: the host's scale" in note


def test_mixed_measures_operators_of_the_cpu() -> None:
    log, simulator = _mixed(2.0)
    simulator.now_ns()
    took = _passed(log, simulator, _operator(log, SECOND, on_host=True))
    assert took == 2 * (SECOND + 3_000)  # a record of this log takes 1 us


def test_mixed_models_operators_of_the_device() -> None:
    log, simulator = _mixed(0.5)
    modelled_log, modelled = begin()
    modelled.now_ns()
    simulator.now_ns()
    took = _passed(log, simulator, _operator(log, SECOND, on_host=False))
    assert took == _passed(modelled_log, modelled, _operator(modelled_log, SECOND, on_host=False))


def test_mixed_does_not_charge_sleeps_at_its_scale() -> None:
    log, simulator = _mixed(2.0)
    simulator.now_ns()

    def sleeps() -> None:
        log.host_ns += SECOND
        log.write(LogCode.ADVANCE, SECOND)

    assert _passed(log, simulator, sleeps) <= SECOND + 2_000


def test_a_read_after_autograds_thread_has_worked_comes_after_its_work() -> None:
    log, simulator = begin()
    _python(log)
    log.launch(1_000)
    before = simulator.now_ns()
    log.thread, log.stack = 1, -1
    with log.op("aten::mul", forward=0):
        log.launch(1_000)
    log.thread, log.stack = 0, 0
    assert simulator.now_ns() - before > HOST.launch + HOST.operator
