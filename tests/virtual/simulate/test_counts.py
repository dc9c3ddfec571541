"""Counts since a mark are those of the timeline."""

from __future__ import annotations

from virtual.simulate.runs import begin

from unstall.virtual.log import LogCode
from unstall.virtual.simulation.counts import Mark

MIB = 1 << 20


def test_launches_since_a_mark_are_calls_that_put_work_on_the_device() -> None:
    log, simulator = begin()
    log.launch(1_000)
    mark = simulator.mark()
    for _ in range(2):
        log.launch(1_000)
    log.write(LogCode.COPY, a=100, flags=3)
    log.write(LogCode.SYNC_DEVICE)

    assert simulator.counts_since(mark).launches == 3
    assert simulator.counts_since(Mark()).launches == 4
    launch = simulator.timeline().device.launch
    assert len(set(launch.tolist())) == 4


def test_the_peak_of_reserved_memory_is_that_since_the_mark() -> None:
    log, simulator = begin()
    for number, mib in ((1, 30), (2, 50)):
        log.write(LogCode.MALLOC, number, mib * MIB)
    log.write(LogCode.FREE, 2)
    log.write(LogCode.EMPTY_CACHE, device=-1)
    mark = simulator.mark()
    assert simulator.counts_since(mark).reserved_peak_bytes == 30 * MIB

    log.write(LogCode.MALLOC, 3, 40 * MIB)
    log.write(LogCode.FREE, 3)
    assert simulator.counts_since(mark).reserved_peak_bytes == 70 * MIB
    assert simulator.counts_since(Mark()).reserved_peak_bytes == 80 * MIB


def test_counting_takes_no_virtual_time() -> None:
    log, simulator = begin()
    log.launch(1_000)
    before = simulator.here_ns()
    simulator.counts_since(simulator.mark())
    assert simulator.here_ns() == before
