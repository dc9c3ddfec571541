"""The memory history: what the allocators did while it was kept."""

from __future__ import annotations

import sys

from virtual.simulate.logs import MIB, Log
from virtual.simulate.runs import begin

from unstall.virtual.simulation.simulator import Simulator


def actions(simulator: Simulator) -> list[tuple[str, int]]:
    with simulator.simulated() as simulation:
        return [(entry.action, entry.size) for entry in simulation.requests.history(0)]


def record(simulator: Simulator, most_entries: int | None = sys.maxsize) -> None:
    with simulator.simulated() as simulation:
        simulation.requests.record_history(most_entries)


def use(log: Log, size: int) -> None:
    log.free(log.malloc(size))


def test_it_has_every_action_in_order_with_the_bytes_that_were_asked_for() -> None:
    log, simulator = begin()
    record(simulator)
    use(log, 1_000)
    assert actions(simulator) == [
        ("segment_alloc", 2 * MIB),
        ("alloc", 1_000),
        ("free_requested", 1_000),
        ("free_completed", 1_000),
    ]


def test_it_begins_where_it_was_asked_for_and_keeps_the_last_entries() -> None:
    log, simulator = begin()
    use(log, 1_000)
    record(simulator, 2)
    assert actions(simulator) == []
    use(log, 2_000)
    assert actions(simulator) == [("free_requested", 2_000), ("free_completed", 2_000)]


def test_it_is_gone_once_it_is_not_wanted_any_more() -> None:
    log, simulator = begin()
    record(simulator)
    use(log, 1_000)
    record(simulator, None)
    use(log, 1_000)
    assert actions(simulator) == []
