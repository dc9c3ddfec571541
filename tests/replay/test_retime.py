"""A replayed program as a timeline again: the same events, in the same order, at their new times."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from programs import Program, programs
from replay.recorded import A_FEW, Trace
from replay.test_build_laws import Taught, taught

from unstall.diagnose.analyse import analyse
from unstall.diagnose.outlook import replayed_run
from unstall.diagnose.run import Run
from unstall.replay.program import Code
from unstall.result import Accounts, DeviceAccounts
from unstall.timeline.columns import HostKind, Timeline
from unstall.what_if.edits import parse
from unstall.what_if.model import model

EDITS = st.lists(
    st.sampled_from(
        [
            "remove-syncs",
            "pin-copies",
            "overlap-copies",
            "graph",
            "host-speed:inf",
            "host-speed:0.5",
            "kernel-speed:inf",
            "kernel-speed:0.5",
            "keep-cache",
        ]
    ),
    max_size=3,
)


def again(run: Run, *edits: str, as_recorded: bool = True) -> Run:
    """The run as its program replays, after these edits."""
    subject = model(run.timeline, run.steps, run.places, as_recorded=as_recorded).subject
    for edit in edits:
        subject = parse(edit).apply(subject)
    return replayed_run(run, subject)


def times(timeline: Timeline) -> dict[str, list[int]]:
    return {
        f"{table}.{side}": getattr(getattr(timeline, table), side).tolist()
        for table in ("host", "device")
        for side in ("start", "end")
    }


@A_FEW
@given(taught())
def test_a_replay_without_an_edit_is_the_recorded_timeline(program: Taught) -> None:
    timeline = program.timeline()
    assert times(again(analyse(timeline)).timeline) == times(timeline)


def test_what_a_thread_does_before_its_first_call_stays_in_its_place() -> None:
    """Autograd's work is recorded while the steps' thread is in an operator, so it is not merged with that thread."""
    trace = Taught()
    for _ in range(3):
        with trace.step():
            with trace.differentiated():
                trace.work(5)
            with trace.op("aten::mm"):
                trace.launch()
            with trace.op("aten::add"), trace.backward("AddBackward0", -1):
                trace.launch()
    timeline = trace.timeline()
    run = analyse(timeline)
    assert Code.JOIN in model(run.timeline, run.steps, run.places, as_recorded=True).subject.program.instructions.code
    assert times(again(run).timeline) == times(timeline)


def parts(accounts: Accounts | DeviceAccounts) -> list[int]:
    return [*msgspec.structs.astuple(accounts.busy_ns), *msgspec.structs.astuple(accounts.idle_ns)]


@A_FEW
@given(programs(), EDITS, st.booleans())
def test_after_any_edits_the_accounts_add_up(program: Program, edits: list[str], as_recorded: bool) -> None:
    run = analyse(program.timeline())
    assume(run.ops_inside.any())
    edited = again(run, *edits, as_recorded=as_recorded)
    for accounts in (edited.accounts, *(accounts for accounts, _ in edited.by_device)):
        assert min(parts(accounts)) >= 0
        assert sum(parts(accounts)) == accounts.wall_ns


@A_FEW
@given(programs(), EDITS, st.booleans())
def test_after_any_edits_who_called_whom_is_the_same(program: Program, edits: list[str], as_recorded: bool) -> None:
    run = analyse(program.timeline())
    before, host = run.timeline.host, again(run, *edits, as_recorded=as_recorded).timeline.host
    called = np.flatnonzero((host.parent >= 0) & (before.end <= before.end[host.parent]))
    assert (host.start >= 0).all()
    assert (host.start <= host.end).all()
    assert (host.start[host.parent[called]] <= host.start[called]).all()
    assert (host.end[called] <= host.end[host.parent[called]]).all()
    for thread in np.unique(host.thread):
        mine = host.thread == thread
        assert (np.diff(host.start[mine]) >= 0).all()


@A_FEW
@given(programs(), EDITS)
def test_after_any_edits_the_tables_point_at_what_is_there(program: Program, edits: list[str]) -> None:
    timeline = again(analyse(program.timeline()), *edits).timeline
    host, device, waits = timeline.host, timeline.device, timeline.waits
    assert (np.diff(device.start) >= 0).all()
    assert (device.end >= device.start).all()
    assert ((device.stream >= 0) & (device.stream < len(timeline.streams))).all()
    assert (timeline.streams.device[device.stream] == device.device).all()
    launched = device.launch[device.launch >= 0]
    assert ((host.kind[launched] >= HostKind.LAUNCH) & (host.kind[launched] <= HostKind.MEMSET)).all()
    assert np.isin(waits.host, np.flatnonzero((host.kind == HostKind.SYNC) | (host.kind == HostKind.EVENT_WAIT))).all()


def stalled() -> Trace:
    """Twice: a kernel of 100 µs that is waited for, within 13 µs of other calls and work."""
    trace = Trace(latency_us=3)
    for _ in range(2):
        with trace.step(), trace.op("aten::mm"):
            trace.launch("gemm", 100)
            with trace.op("aten::item"):
                trace.sync()
            trace.work(5)
    return trace


def test_what_lies_between_two_calls_moves_with_them() -> None:
    """The kernel takes half its time: all that comes after the wait is 50 µs earlier, the second time 100."""
    run = analyse(stalled().timeline())
    edited = again(run, "kernel-speed:2").timeline.host
    item = [i for i, name in enumerate(run.timeline.host.name) if run.timeline.text(int(name)) == "aten::item"]
    earlier = run.timeline.host.end[item] - edited.end[item]
    assert earlier.tolist() == [50_000, 100_000]
    assert (edited.start[item] - run.timeline.host.start[item]).tolist() == [0, -50_000]


def test_work_gets_shorter_with_what_does_it() -> None:
    run = analyse(stalled().timeline())
    mm = [i for i, name in enumerate(run.timeline.host.name) if run.timeline.text(int(name)) == "aten::mm"]
    lengths = [(t.host.end - t.host.start)[mm].tolist() for t in (run.timeline, again(run, "host-speed:5").timeline)]
    # Launching 5 and waiting 103 µs, and then 5 of work; as edited 1, 103 and 1.
    assert lengths[0] == [113_000, 113_000]
    assert lengths[1] == [105_000, 105_000]


def test_a_wait_that_is_gone_is_no_wait_of_the_timeline() -> None:
    run = analyse(stalled().timeline())
    assert len(run.timeline.waits) == 2
    assert len(again(run, "remove-syncs").timeline.waits) == 0


def test_what_became_a_graph_is_launched_by_one() -> None:
    trace = Trace()
    for _ in range(2):
        with trace.step():
            for _ in range(3):
                trace.launch("gemm", 10)
            trace.sync()
    run = analyse(trace.timeline())
    edited = again(run, "graph").timeline
    assert np.bincount(edited.device.launch)[edited.device.launch].tolist() == [3] * 6
    assert set(edited.host.kind[edited.device.launch].tolist()) == {HostKind.GRAPH_LAUNCH}


def test_a_stream_of_copies_is_one_more_stream() -> None:
    trace = Trace()
    for _ in range(3):
        with trace.step():
            trace.copy("HtoD", 50)
            trace.launch("gemm", 50)
    edited = again(analyse(trace.timeline()), "overlap-copies").timeline
    assert edited.streams.stream.tolist() == [7, 8]
    assert edited.device.stream.tolist().count(1) == 3


@pytest.mark.parametrize("edit", ["kernel-speed:inf", "remove-syncs"])
def test_ops_that_are_gone_are_not_in_the_timeline(edit: str) -> None:
    trace = Trace()
    for _ in range(2):
        with trace.step():
            trace.launch("gemm", 100)
            trace.item()
    edited = again(analyse(trace.timeline()), edit).timeline
    gone = "gemm" if edit == "kernel-speed:inf" else "Memcpy DtoH (Device -> Pinned)"
    assert gone not in {edited.text(int(name)) for name in edited.device.name}
    assert len(edited.device) == 2
