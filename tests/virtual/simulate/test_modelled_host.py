"""What a modelled host charges for each record of a log, as a whole or in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import CodeType

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from virtual.simulate.logs import HOST, MIB, Log

from unstall.timeline.columns import I64
from unstall.virtual.costs.model import HostCosts
from unstall.virtual.log import NO_PYTHON, RECORD, LogCode, Stack
from unstall.virtual.simulation.modelled_host import ModelledHost

NODE, RECORDED, FOREIGN_FREE, ENGINE = 7_000, 500, 300, 60_000
FOREIGN_RECORDED = 2_000
USE, COLD_USE = 20, 60
COSTS = replace(
    HOST,
    nested=0,
    node=NODE,
    recorded=RECORDED,
    foreign_recorded=FOREIGN_RECORDED,
    foreign_free=FOREIGN_FREE,
    engine=ENGINE,
    use=USE,
    cold_use=COLD_USE,
    few_uses=2,
    warm_others=1,
    cold_others=4,
)


_STACKS: list[Stack] = [[], [(compile("1\n2", "one", "exec"), 2)], [(compile("3\n4", "two", "exec"), 4)]]


def _charged(log: Log, costs: HostCosts = COSTS, pieces: list[int] | None = None) -> list[int]:
    """What a host charges for each record beyond its usual cost, if it gets the log in `pieces` of that many."""
    records = np.array(log.rows, RECORD)
    host, charged, at = ModelledHost(costs), [], 0
    host.know(_STACKS)
    for size in [*(pieces or []), len(records)]:
        part = records[at : at + size]
        if len(part):
            charged += _work(host, part).tolist()
        at += size
    return charged


def _work(host: ModelledHost, records: np.ndarray, handed: Sequence[int] = ()) -> I64:
    nothing = np.zeros(len(records), np.bool_)
    return host.work(records, np.zeros(len(records), np.int64), nothing, np.isin(np.arange(len(records)), handed))


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
    charged = _begins(log, _charged(log))
    assert charged == [0, RECORDED, 0, 2 * RECORDED, 0, 2 * RECORDED]


def test_recording_a_node_takes_longer_in_memory_that_a_thread_of_autograd_has_freed() -> None:
    log = Log()
    for sequence in (40, 41, 42):
        with log.op("aten::mul", sequence):
            pass
    log.thread = 1
    for forward in (41, 40, -1, -1):  # -1: a gradient is accumulated
        with log.op("MulBackward0", forward, 0), log.op("aten::mul"):
            pass
    log.thread = 0
    for sequence in (43, 44, 45):
        with log.op("aten::mul", sequence):
            pass
    charged = _begins(log, _charged(log, replace(COSTS, node=0)))
    assert charged == [0, RECORDED, RECORDED, *[0] * 8, FOREIGN_RECORDED, FOREIGN_RECORDED, RECORDED]


def test_the_backward_pass_pays_for_nodes_that_it_runs_and_not_for_those_recorded() -> None:
    log = Log()
    with log.op("aten::mul", 40):
        pass
    log.thread = 1
    for forward in (39, 38):
        with log.op("MulBackward0", forward, 0), log.op("aten::mul"):
            pass
    charged = _begins(log, _charged(log))
    assert charged == [0, NODE, 0, NODE, 0]


def _code(name: str) -> CodeType:
    return compile("pass\npass\npass", name, "exec")


def _python(costs: HostCosts, stacks: list[Stack], calls: list[tuple[int, str]]) -> list[int]:
    """What Python code costs before each of the operators that are called at these numbers of stacks."""
    log, host = Log(), ModelledHost(costs)
    host.know(stacks)
    for stack, name in calls:
        log.stack = stack
        _operators(log, name)
    return _begins(log, _work(host, np.array(log.rows, RECORD)).tolist())


PYTHON = replace(COSTS, bytecode=100, cold_bytecode=1_000, warm_others=2, cold_others=4, node=0)


def test_python_code_takes_longer_the_more_other_operators_its_thread_has_begun() -> None:
    module = _code("module")
    stacks: list[Stack] = [[(module, 0)], [(module, 2)]]  # one code unit between the two
    calls = [(at % 2, name) for at, name in enumerate("abcabcdabcdeabcde")]  # two, three and four others
    charged = _python(PYTHON, stacks, calls)
    assert charged[0] == 0  # nothing is known of what ran before
    assert charged[1:] == [*[1_000] * 2, *[100] * 3, 1_000, *[550] * 4, *[1_000] * 6]


def test_functions_count_as_operators_do() -> None:
    module, inner, other = (_code(name) for name in ("module", "inner", "other"))
    stacks: list[Stack] = [[(module, 0)], [(inner, 2), (module, 0)], [(other, 2), (module, 0)]]
    charged = _python(PYTHON, stacks, [(0, "a"), (1, "a"), (2, "a"), (1, "b"), (2, "a")])
    # before the second and the third "a" one function was entered, before the last "b" and two functions
    assert charged == [0, 100, 100, 1_000, 550]


def test_what_torch_does_without_an_operator_has_its_python_code_in_its_cost() -> None:
    module, inner = _code("module"), _code("inner")
    log, host = Log(), ModelledHost(PYTHON)
    host.know([[(module, 0)], [(inner, 2), (module, 2)], [(module, 4)]])
    _operators(log, "a")
    log.stack = 1
    log.write(LogCode.CALL)
    log.stack = 2
    _operators(log, "a")
    charged = _work(host, np.array(log.rows, RECORD)).tolist()
    assert charged == [0, 0, 0, 200, 0]  # two code units of the module


def test_what_autograds_threads_begin_is_no_other() -> None:
    module = _code("module")
    log, host = Log(), ModelledHost(PYTHON)
    host.know([[(module, 0)], [(module, 2)]])
    log.thread = 1  # it runs Python at times, such as a hook's
    for stack, names in ((0, "a"), (NO_PYTHON, "bcdef"), (1, "a")):
        log.stack = stack
        _operators(log, *names)
    assert _begins(log, _work(host, np.array(log.rows, RECORD)).tolist())[-1] == 100


def test_the_engine_of_autograd_is_woken_once_for_a_backward_pass() -> None:
    log = Log()
    log.thread = 1
    _operators(log, "a", "b")
    charged = _work(ModelledHost(replace(COSTS, node=0)), np.array(log.rows, RECORD), handed=[0])
    assert _begins(log, charged.tolist()) == [ENGINE, 0]


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


def test_tensors_are_charged_by_their_number_and_more_if_the_operator_was_not_called_lately() -> None:
    log = Log()
    for name in "aab":
        with log.op(name):
            log.launch(1_000)
    records = np.array(log.rows, RECORD)
    launches = np.flatnonzero(records["code"] == LogCode.LAUNCH)
    records["uses"][launches] = [3, 4, 100]
    assert _work(ModelledHost(COSTS), records)[launches].tolist() == [COLD_USE, 2 * USE, 98 * COLD_USE]


_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["a", "b", "c", "malloc", "free", "advance"]),
        st.integers(-1, 5),
        st.sampled_from([NO_PYTHON, 0, 1, 2]),
    ),
    max_size=40,
)


@example([*((0, name, -1, 1) for name in "abca"), (0, "malloc", 0, 2)], [8])
@given(_EVENTS, st.lists(st.integers(1, 10), max_size=8))
def test_a_log_in_pieces_costs_what_it_costs_as_a_whole(
    events: list[tuple[int, str, int, int]], pieces: list[int]
) -> None:
    log = Log()
    for thread, event, number, log.stack in events:
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
    costs = replace(PYTHON, warm_others=0, cold_others=3)
    assert _charged(log, costs, pieces) == _charged(log, costs)
