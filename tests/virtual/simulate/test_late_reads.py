"""Reads of the clock whose time is found later."""

from __future__ import annotations

import gc
import random
from dataclasses import replace

from virtual.simulate.logs import HOST, Fixed
from virtual.simulate.runs import begin

from unstall.guest.instants import LateRead
from unstall.virtual.log import NO_PYTHON, CopyFlag, LogCode

UNKNOWN = -2  # a stack


def test_a_late_read_tells_what_a_read_at_its_place_would_have_told() -> None:
    costs = Fixed()
    costs.host = replace(HOST, clock_read=0)  # what a read costs is charged later if the read is not a record

    def run(seed: int, *, late: bool) -> list[int]:
        dice = random.Random(seed)
        log, simulator = begin(costs=costs)
        told: list[int | LateRead] = []
        log.launch(1_000)  # the program's own thread comes first
        for _ in range(dice.randrange(1, 60)):
            what = dice.randrange(5)
            log.thread = dice.randrange(3)
            log.stack = NO_PYTHON if log.thread == 2 else UNKNOWN
            if log.thread == 2 and what == 4:  # a thread of autograd reads no clock
                what = 0
            if what == 0:
                log.launch(dice.randrange(1, 100_000), stream=dice.randrange(2))
            elif what == 1:
                log.copy(dice.randrange(1, 1 << 20), CopyFlag.HOST_TO_DEVICE)
            elif what == 2:
                log.write(LogCode.SYNC_DEVICE, device=0)
            elif what == 3:
                with log.op("mul"):
                    log.launch(1_000)
            else:
                told.append(simulator.read_late(7) if late else simulator.now_ns() + 7)
        return [each if isinstance(each, int) else each.ns() for each in told]

    for seed in range(40):
        assert run(seed, late=True) == run(seed, late=False), seed


def test_nothing_is_simulated_before_somebody_asks() -> None:
    log, simulator = begin()
    first = simulator.read_late(0)
    log.launch(10_000)
    second = simulator.read_late(0)
    assert simulator.simulation.history.happened.length == 0
    assert second.ns() > first.ns() > 0
    length = simulator.simulation.history.happened.length
    simulator.read_late(0)
    assert first.ns() < second.ns()
    assert simulator.simulation.history.happened.length == length > 0


def test_reads_that_nobody_keeps_are_forgotten() -> None:
    log, simulator = begin()
    for _ in range(100):
        simulator.read_late(0)
    kept = simulator.read_late(0)
    gc.collect()
    assert len(simulator._late_reads) == 1
    log.launch(1)
    assert kept.ns() > 0
    assert len(simulator._late_reads) == 0


def test_a_forked_process_still_gets_a_time() -> None:
    _, simulator = begin()
    before = simulator.read_late(0)
    simulator.forked()
    assert before.ns() >= 0
    assert simulator.read_late(0).ns() >= 0
