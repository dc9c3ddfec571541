"""What a long run keeps in memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from virtual.simulate.logs import Fixed, Log

from unstall.frameworks import OURS
from unstall.virtual.log import RECORD, USE, LogCode
from unstall.virtual.options import MachineOptions
from unstall.virtual.simulation.simulator import Simulator

CODES = (LogCode.OP_BEGIN, LogCode.MALLOC, LogCode.LAUNCH, LogCode.OP_END, LogCode.FREE)
OPERATORS = 8_000


class Adding(Log):
    """The log of `y = x + 1` in a loop: each addition takes memory, and gives that of the one before back."""

    def __init__(self) -> None:
        super().__init__()
        self.operators.append(("100", "{}", (), ()))
        self.name("aten::add")
        self.added = 0
        self._records, self._uses = b"", b""

    def add(self) -> None:
        records, uses = np.zeros(5 * OPERATORS, RECORD), np.zeros(2 * OPERATORS, USE)
        number = self.added + np.arange(OPERATORS)
        records["code"], records["stack"] = np.tile(CODES, OPERATORS), -2
        records["id"] = np.tile([0, -1, 0, -1, -1], OPERATORS)
        records["a"][0::5] = records["b"][0::5] = -1
        records["a"][1::5], records["b"][1::5] = number + 1, 16
        records["a"][4::5] = number
        records["uses"][2::5] = 2
        uses["allocation"][0::2], uses["allocation"][1::2], uses["bytes"] = 1, number + 1, 16
        self.added += OPERATORS
        self._records, self._uses = records.tobytes(), uses.tobytes()

    def take(self) -> tuple[bytes, bytes, bytes]:
        taken, self._records, self._uses = (self._records, self._uses, b""), b"", b""
        return taken


@pytest.mark.ci
def test_an_operator_keeps_few_bytes() -> None:
    log = Adding()
    simulator = Simulator(log, MachineOptions(), Fixed())
    log.add()
    simulator.drain()
    tracemalloc.start()
    try:
        for _ in range(6):
            log.add()
            simulator.drain()
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    # Threads that other tests left behind may take memory, too.
    ours = taken.filter_traces([tracemalloc.Filter(True, f"{OURS}*")]).statistics("filename")
    assert sum(each.size for each in ours) / (6 * OPERATORS) < 500  # with the last rows, which are not packed yet
