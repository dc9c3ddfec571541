"""Events that the program lets go: nothing is kept of them, and what waited for them waits as ever."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from virtual.simulate.runs import begin, ops

from unstall.virtual.log import LogCode


@pytest.mark.parametrize("per_drain", [1, 7, 100])
def test_of_events_that_are_gone_nothing_is_kept(per_drain: int) -> None:
    log, simulator = begin()
    for event in range(1, 101):
        log.write(LogCode.EVENT_RECORD, event)
        log.gone_events.append(event)
        if event % per_drain == 0:
            simulator.drain()
    log.write(LogCode.EVENT_RECORD, 101)
    simulator.drain()
    assert set(simulator.simulation.events) == set(simulator.simulation.arrived) == {101}
    assert simulator.simulation.when_done(100) is None
    assert simulator.simulation.when_passed(101) is not None


@pytest.mark.parametrize("drained", [False, True])
def test_what_waits_for_an_event_waits_for_it_though_it_is_gone(drained: bool) -> None:
    def times(gone: bool) -> list[tuple[int, int, int]]:
        log, simulator = begin()
        log.launch(500_000, stream=32)
        log.write(LogCode.EVENT_RECORD, 1, stream=32)
        log.write(LogCode.EVENT_WAIT, 1)
        if gone:
            log.gone_events.append(1)
        if drained:
            simulator.drain()
        log.launch(10)
        return ops(simulator.timeline())

    assert times(gone=True) == times(gone=False)
    (_, _, first_ends), (_, second_starts, _) = sorted(times(gone=True), key=lambda op: op[1])
    assert second_starts > first_ends


@pytest.mark.ci
def test_a_program_that_asks_at_each_event_keeps_little_more_than_their_records() -> None:
    log, simulator = begin()
    asked = 1024  # four times as many parts as are put together at once

    def ask(events: range) -> None:
        for event in events:
            log.write(LogCode.EVENT_RECORD, event)
            log.gone_events.append(event)
            simulator.drain()

    ask(range(1, asked + 1))
    tracemalloc.start()
    try:
        ask(range(asked + 1, 2 * asked + 1))
        gc.collect()  # what runs in circles is let go sooner or later
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / asked < 250
