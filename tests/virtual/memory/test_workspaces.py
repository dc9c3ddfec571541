"""What cuBLAS keeps: for each thread's handle, each stream and each library of its own, until it is cleared."""

from __future__ import annotations

import threading

from virtual.simulate.logs import MIB, Log
from virtual.simulate.runs import begin, memory_stats

from unstall.virtual.log import LogCode
from unstall.virtual.simulation.simulator import Simulator

CUBLAS = (("cublas", 32 * MIB),)


def allocated_mib(simulator: Simulator) -> int:
    return memory_stats(simulator)["allocated_bytes.all.current"] // MIB


def product(log: Log, thread: int, stack: int, stream: int = 0) -> None:
    log.thread, log.stack = thread, stack
    with log.op("aten::mm"):
        log.launch(10, stream=stream, workspaces=CUBLAS)


def test_a_thread_of_autograd_has_a_handle_with_workspaces_of_its_own() -> None:
    log, simulator = begin()
    for _ in range(2):
        product(log, thread=0, stack=-2)
        product(log, thread=1, stack=-1)
    assert allocated_mib(simulator) == 64
    product(log, thread=1, stack=-1, stream=3)
    assert allocated_mib(simulator) == 96


def test_a_thread_of_python_that_has_ended_left_its_handle_to_the_next() -> None:
    log, simulator = begin()
    for thread in range(10):
        product(log, thread=thread, stack=-2)
    assert allocated_mib(simulator) == 32 * min(10, threading.active_count())


def test_cleared_workspaces_are_given_back_and_taken_again_when_they_are_needed() -> None:
    log, simulator = begin()
    product(log, thread=0, stack=-2)
    product(log, thread=1, stack=-1)
    with simulator.simulated() as simulation:
        simulation.clear_workspaces()
    stats = memory_stats(simulator)
    assert stats["allocated_bytes.all.current"] == 0
    assert stats["reserved_bytes.all.current"] == 64 * MIB
    product(log, thread=0, stack=-2)
    assert allocated_mib(simulator) == 32
    assert simulator.timeline().memory.allocated[-1] == 32 * MIB


def test_an_emptied_cache_keeps_them() -> None:
    log, simulator = begin()
    product(log, thread=0, stack=-2)
    log.write(LogCode.EMPTY_CACHE)
    assert allocated_mib(simulator) == 32
