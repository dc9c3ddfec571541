"""What holds for any log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from virtual.simulate.logs import Fixed, Log

from unstall.diagnose.explain import explain
from unstall.timeline.columns import HostKind, Timeline
from unstall.virtual.log import CopyFlag, LogCode
from unstall.virtual.options import MachineOptions
from unstall.virtual.simulation.simulator import Simulator

A_FEW = examples(40)
STREAMS = st.sampled_from([0, 0, 0, 3, 8])
ACTIONS = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from([100, 9_000, 12_000, 90_000]), STREAMS),
    st.tuples(st.just("copy"), st.sampled_from([4, 9, 13, 12, 6, 11, 26]), STREAMS),
    st.tuples(st.just("malloc"), st.sampled_from([1, 3_000_000, 30_000_000]), STREAMS),
    st.tuples(st.just("free"), st.integers(0, 5), STREAMS),
    st.tuples(st.just("use"), st.integers(0, 5), STREAMS),
    st.tuples(st.just("record"), st.integers(1, 3), STREAMS),
    st.tuples(st.just("wait"), st.integers(1, 4), STREAMS),
    st.tuples(
        st.just("sync"), st.sampled_from([LogCode.SYNC_EVENT, LogCode.SYNC_STREAM, LogCode.SYNC_DEVICE]), STREAMS
    ),
    st.tuples(st.just("thread"), st.sampled_from([0, 1, 2]), STREAMS),
    st.tuples(st.just("op"), st.sampled_from(["aten::mm", "aten::add"]), STREAMS),
    st.tuples(st.just("end"), st.just(0), STREAMS),
    st.tuples(st.just("empty"), st.just(0), STREAMS),
    st.tuples(st.just("graph"), st.integers(1, 2), STREAMS),
)
PROGRAMS = st.lists(ACTIONS, max_size=40)


def write(log: Log, actions: list[tuple[str, Any, int]], drain: Any = None, longer: int = 0) -> None:
    live: list[int] = []
    depth: dict[int, int] = {}
    log.stack = -2
    for number, (what, value, stream) in enumerate(actions):
        if drain is not None and drain(number):
            yield_to_simulator(log)
        match what:
            case "launch":
                log.launch(value + longer, stream=stream)
            case "copy":
                log.copy(100_000, CopyFlag(value), stream=stream)
            case "malloc":
                live.append(log.malloc(value, stream=stream))
            case "free" if value < len(live):
                log.free(live.pop(value))
            case "use" if value < len(live):
                log.write(LogCode.USE_STREAM, live[value], stream=stream)
            case "record":
                log.write(LogCode.EVENT_RECORD, value, stream=stream)
            case "wait":
                log.write(LogCode.EVENT_WAIT, value, stream=stream)
            case "sync":
                log.write(value, 1, stream=stream)
            case "thread":
                log.thread, log.stack = value, -1 if value == 2 else -2
            case "op":
                log.write(LogCode.OP_BEGIN, -1, -1, id=log.name(value))
                depth[log.thread] = depth.get(log.thread, 0) + 1
            case "end" if depth.get(log.thread):
                log.write(LogCode.OP_END)
                depth[log.thread] -= 1
            case "empty":
                log.write(LogCode.EMPTY_CACHE)
            case "graph":
                if value not in log.graphs:
                    log.graphs.add(value)
                    log.write(LogCode.CAPTURE_BEGIN, value, 100 + value, stream=9)
                    log.launch(5_000, stream=9)
                    log.write(LogCode.CAPTURE_END, value, stream=9)
                log.write(LogCode.GRAPH_LAUNCH, value, stream=stream)


def yield_to_simulator(log: Log) -> None:
    assert log.simulator is not None
    log.simulator.drain()


def run(actions: list[tuple[str, Any, int]], cuts: frozenset[int] = frozenset(), longer: int = 0) -> Simulator:
    log = Log()
    log.simulator = Simulator(log, MachineOptions(), Fixed())
    write(log, actions, drain=cuts.__contains__, longer=longer)
    log.simulator.drain()
    return log.simulator


def columns(timeline: Timeline) -> dict[str, Any]:
    found: dict[str, Any] = {"strings": timeline.strings}
    for name, table in timeline.tables.items():
        found |= {f"{name}.{each}": getattr(table, each).tobytes() for each in table.__struct_fields__}
    return found


@A_FEW
@given(actions=PROGRAMS, cuts=st.frozensets(st.integers(0, 40), max_size=6))
def test_when_the_log_is_taken_in_changes_nothing(actions: list[tuple[str, Any, int]], cuts: frozenset[int]) -> None:
    assert columns(run(actions, cuts).timeline()) == columns(run(actions).timeline())


@A_FEW
@given(actions=PROGRAMS)
def test_a_timeline_is_in_order_and_points_into_itself(actions: list[tuple[str, Any, int]]) -> None:
    timeline = run(actions).timeline()
    host, device, waits = timeline.host, timeline.device, timeline.waits
    assert (host.end >= host.start).all()
    assert (np.lexsort((-host.end, host.start, host.thread)) == np.arange(len(host))).all()
    assert (host.parent < np.arange(len(host))).all()
    inside = host.parent >= 0
    assert (host.end[inside] <= host.end[host.parent[inside]]).all()
    assert (np.diff(device.start) >= 0).all()
    assert (device.launch >= 0).all()
    assert (device.start >= host.start[device.launch]).all()
    assert np.isin(host.kind[waits.host], (HostKind.SYNC, HostKind.EVENT_WAIT)).all()
    events = waits.record[waits.record >= 0]
    assert (host.kind[events] == HostKind.EVENT_RECORD).all()
    assert (np.diff(timeline.memory.time) >= 0).all()
    for stream in range(len(timeline.streams)):
        mine = device.stream == stream
        assert (device.start[mine][1:] >= device.end[mine][:-1]).all()


@A_FEW
@given(actions=PROGRAMS, longer=st.integers(1, 300_000))
def test_longer_kernels_of_one_stream_never_make_a_program_shorter(
    actions: list[tuple[str, Any, int]], longer: int
) -> None:
    alone = [(what, value, 0) for what, value, _ in actions if what not in ("free", "use")]
    assert run(alone, longer=longer).now_ns() >= run(alone).now_ns()


@A_FEW
@given(actions=PROGRAMS)
def test_any_run_can_be_explained(actions: list[tuple[str, Any, int]]) -> None:
    timeline = run(actions).timeline()
    if len(timeline.device):
        assert str(explain(timeline))


@pytest.mark.parametrize("host", ["modelled", "measured"])
def test_a_run_can_be_saved_and_read_again(host: Any, tmp_path: Any) -> None:
    import unstall

    log = Log()
    simulator = Simulator(log, MachineOptions(host=host), Fixed())
    with log.op("aten::mm"):
        log.launch(9_000)
    simulator.timeline().save(tmp_path / "run.unstall")
    assert columns(unstall.load(tmp_path / "run.unstall")) == columns(simulator.timeline())
