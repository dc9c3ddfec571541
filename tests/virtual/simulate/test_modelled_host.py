"""What a modelled host charges for each record of a log, as a whole or in pieces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from virtual.simulate.logs import HOST, MIB, Log

from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import RECORD, LogCode
from unstall.virtual.simulation.host_clock import ModelledHost

NODE, RECORDED, COLD, FOREIGN_FREE, LISTED = 7_000, 500, 900, 300, 20
COSTS = replace(
    HOST,
    node=NODE,
    recorded=RECORDED,
    cold=COLD,
    foreign_free=FOREIGN_FREE,
    listed=LISTED,
    most_not_listed=3,
    warm_records=4,
)


def _charged(log: Log, costs: HostCosts = COSTS, pieces: list[int] | None = None) -> list[int]:
    """What a host charges for each record beyond its usual cost, if it gets the log in `pieces` of that many."""
    records = np.array(log.rows, RECORD)
    host, charged, at = ModelledHost(costs), [], 0
    for size in [*(pieces or []), len(records)]:
        part = records[at : at + size]
        if len(part):
            charged += host.work(part, np.zeros(len(part), np.int64), np.zeros(len(part), np.bool_)).tolist()
        at += size
    return charged


def _operators(log: Log, *names: str) -> None:
    for name in names:
        with log.op(name):
            pass


def _begins(log: Log, charged: list[int]) -> list[int]:
    return [each for row, each in zip(log.rows, charged, strict=True) if row[9] == LogCode.OP_BEGIN]


def test_each_node_that_autograd_records_is_charged_to_the_next_operator() -> None:
    log = Log()
    # -1: without gradients; of the thousand nodes at the end, most are not the program's
    for sequence in (40, 41, 41, 43, -1, 1_044):
        with log.op("aten::mul", sequence):
            pass
    charged = _begins(log, _charged(log, replace(COSTS, cold=0)))
    assert charged == [0, RECORDED, 0, 2 * RECORDED, 0, 2 * RECORDED]


def test_the_backward_pass_pays_for_nodes_that_it_runs_and_not_for_those_recorded() -> None:
    log = Log()
    with log.op("aten::mul", 40):
        pass
    log.thread = 1
    for forward in (39, 38):
        with log.op("MulBackward0", forward, 0), log.op("aten::mul"):
            pass
    charged = _begins(log, _charged(log, replace(COSTS, cold=0)))
    assert charged == [0, NODE, 0, NODE, 0]


def test_an_operator_is_cold_that_was_not_called_lately_except_for_autograd() -> None:
    log = Log()
    _operators(log, "a", "a", "b", "b", "a", "a")
    assert _begins(log, _charged(log)) == [COLD, 0, COLD, 0, COLD, 0]
    log.rows.clear()
    log.thread = 1
    _operators(log, "a", "b")
    assert _begins(log, _charged(log, replace(COSTS, node=0))) == [0, 0]


def test_freeing_a_tensor_of_another_thread_takes_longer_except_for_autograd() -> None:
    log = Log()
    own = log.malloc(MIB)
    log.thread = 1
    gradients = [log.malloc(MIB) for _ in range(2)]
    other = log.malloc(MIB)
    log.thread = 0
    for allocation in (own, *gradients, 99):  # 99: made before the log began
        log.free(allocation)
    mine = log.malloc(MIB)
    log.thread = 1
    log.free(other)
    log.free(mine)
    charged = _charged(log)
    frees = [charged[i] for i, row in enumerate(log.rows) if row[9] == LogCode.FREE]
    assert frees == [0, FOREIGN_FREE, FOREIGN_FREE, 0, 0, 0]


def test_a_list_of_tensors_is_charged_by_its_length() -> None:
    log = Log()
    for _ in range(3):
        log.launch(1_000)
    records = np.array(log.rows, RECORD)
    records["uses"] = [3, 4, 100]
    charged = ModelledHost(COSTS).work(records, np.zeros(3, np.int64), np.zeros(3, np.bool_))
    assert charged.tolist() == [0, 4 * LISTED, 100 * LISTED]


_EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", "malloc", "free", "advance"]), st.integers(-1, 5)),
    max_size=40,
)


@given(_EVENTS, st.lists(st.integers(1, 10), max_size=8))
def test_a_log_in_pieces_costs_what_it_costs_as_a_whole(events: list[tuple[int, str, int]], pieces: list[int]) -> None:
    log = Log()
    for thread, event, number in events:
        log.thread = thread
        if event == "malloc":
            log.write(LogCode.MALLOC, number)
        elif event == "free":
            log.write(LogCode.FREE, number)
        elif event == "advance":
            log.write(LogCode.ADVANCE)
        else:
            with log.op(event, number):
                pass
    assert _charged(log, pieces=pieces) == _charged(log)
