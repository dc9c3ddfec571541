"""A recorded program whose host takes as long as in steps without the recorder: it is the program without one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import astuple
from replay.recorded import A_FEW, Trace
from traces import TraceBuilder
from whatif.made import edited

from unstall.diagnose.explain import explain
from unstall.diagnose.run import Run, analyse
from unstall.read import load
from unstall.replay.program import Code
from unstall.replay.steady import steady_step_ns
from unstall.timeline.columns import I64, HostKind, HostTimes, Timeline
from unstall.whatif.model import Model, model

RECORDED = Path(__file__).parent / "recorded"
_STEPS = 4


@dataclass(frozen=True)
class Op:
    """What a step does once the host has worked for so long: µs."""

    kind: str  # launch, sync, call, graph, backward
    work: int
    device: int = 10


def made(ops: list[Op], more_work: float = 0, more_call: float = 0) -> Timeline:
    """Steps of these; the recorder adds so many µs of work to each, and to each call."""
    trace = Trace()
    for _ in range(_STEPS):
        with trace.step():
            for op in ops:
                _do(trace, op, more_work, 5 + more_call)
            trace.work(3)
    return trace.timeline()


def _do(trace: TraceBuilder, op: Op, more_work: float, call_us: float) -> None:
    if op.kind == "backward":
        with trace.on_thread(445):
            trace.work(op.work + more_work)
            trace.launch("grad", op.device, host_us=call_us)
        return
    trace.work(op.work + more_work)
    match op.kind:
        case "launch":
            trace.launch("kernel", op.device, host_us=call_us)
        case "sync":
            trace.launch("last", op.device, host_us=call_us)
            trace.work(1)
            trace.sync()
        case "call":
            trace.call("cudaEventQuery", call_us)


def moments(timeline: Timeline) -> I64:
    """Begins and ends of steps and calls."""
    host, steps = timeline.host, analyse(timeline).steps
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    return np.sort(np.concatenate([steps.start, steps.end, host.start[calls], host.end[calls]]))


def told(recorded: Timeline, plain: Timeline) -> Timeline:
    """What was recorded, with how long it takes without the recorder."""
    alone = moments(plain)
    return replace(recorded, host_times=HostTimes(moments(recorded), alone - alone[0]))


def modelled(timeline: Timeline, *, plain_step_ns: int | None = None) -> Model:
    run: Run = analyse(timeline)
    return model(timeline, run.steps, run.places, plain_step_ns=plain_step_ns)


def settles_to(timeline: Timeline) -> float:
    """The step of a recorded program as it is."""
    run = analyse(timeline)
    return steady_step_ns(model(timeline, run.steps, run.places, as_recorded=True).subject.program)


OPS = st.lists(
    st.builds(
        Op, st.sampled_from(["launch", "launch", "sync", "call", "backward"]), st.integers(1, 60), st.integers(1, 90)
    ),
    min_size=3,
    max_size=12,
).filter(lambda ops: any(op.kind != "call" for op in ops))


@A_FEW
@given(ops=OPS, work=st.floats(0, 9), call=st.floats(0, 9))
def test_it_takes_as_long_as_without_the_recorder(ops: list[Op], work: float, call: float) -> None:
    recorded, plain = made(ops, round(work, 3), round(call, 3)), made(ops)
    known = modelled(told(recorded, plain))
    assert known.undistorted_by == "host-only steps"
    assert known.undistorted_step_ns == pytest.approx(settles_to(plain), rel=0.02, abs=400)


@A_FEW
@given(ops=OPS)
def test_a_recorder_that_costs_nothing_changes_nothing(ops: list[Op]) -> None:
    timeline = made(ops)
    known = modelled(told(timeline, timeline))
    assert known.undistorted_step_ns == pytest.approx(settles_to(timeline), rel=0.005, abs=400)


HOST_BOUND = [Op("launch", 20)] * 10


def test_the_plain_step_time_is_met_by_a_host_that_was_faster_or_slower_then() -> None:
    timeline = told(made(HOST_BOUND, 3, 2), made(HOST_BOUND))
    alone = modelled(timeline).undistorted_step_ns
    for share in (0.6, 0.9, 1.0, 1.2):
        known = modelled(timeline, plain_step_ns=round(share * alone))
        assert known.undistorted_by == "plain step time"
        assert known.undistorted_step_ns == pytest.approx(share * alone, rel=0.003)
        assert known.device_stretch == 1.0


def test_a_device_that_the_step_is_of_is_what_changed() -> None:
    """Ten ops of 30 us whose launches take 10, read at the end of each step."""
    ops = [Op("launch", 5, 30)] * 9 + [Op("sync", 5, 30)]
    timeline = told(made(ops, 1, 1), made(ops))
    alone = modelled(timeline)
    for share in (0.9, 0.98, 1.02, 1.1):
        known = modelled(timeline, plain_step_ns=round(share * alone.undistorted_step_ns))
        assert known.undistorted_step_ns == pytest.approx(share * alone.undistorted_step_ns, rel=0.003)
        assert 0.7 <= (known.device_stretch - 1) / (share - 1) <= 1.1


@pytest.mark.parametrize("share", [0.95, 0.97, 1.02, 1.1])
@pytest.mark.parametrize("device", [2, 20, 24, 26])
def test_host_and_device_change_as_is_likeliest(device: int, share: float) -> None:
    """Forty launches of a host that takes 25 us for each, and a read at the end; the twin tries many of both."""
    ops = [Op("launch", 20, device)] * 39 + [Op("sync", 20, device)]
    timeline = told(made(ops, 1, 1), made(ops))
    alone = modelled(timeline)
    wanted = share * alone.undistorted_step_ns
    known = modelled(timeline, plain_step_ns=round(wanted))
    works = [each.subject.program.instructions.work.sum() for each in (known, alone)]

    def unlikely(host: float, device: float) -> float:
        return float((np.log(host) / 0.1) ** 2 + (np.log(device) / 0.01) ** 2)

    def off(host: float, device: float) -> float:
        edits = (f"host-speed:{1 / host:.6f}", f"kernel-speed:{1 / device:.6f}")
        return abs(steady_step_ns(edited(alone.subject, *edits).program) / wanted - 1)

    assert known.undistorted_step_ns == pytest.approx(wanted, rel=0.004)
    tried = itertools.product(np.geomspace(0.8, 1.25, 61), np.geomspace(0.92, 1.08, 41))
    best = min(unlikely(*each) for each in tried if off(*each) < 0.004)
    assert unlikely(works[0] / works[1], known.device_stretch) <= 1.5 * best + 1


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99, 1.05, 1.2])
def test_where_neither_host_nor_device_can_be_what_changed_both_stay(share: float) -> None:
    """Steps of 2 ms in which data is waited for, and kernels of a few microseconds."""
    trace = Trace()
    for _ in range(_STEPS):
        with trace.step():
            trace.next_batch(2_000)
            for op in [Op("launch", 1, 2)] * 4:
                _do(trace, op, 0, 1)
    timeline = told(trace.timeline(), trace.timeline())
    alone = modelled(timeline)
    known = modelled(timeline, plain_step_ns=round(share * alone.undistorted_step_ns))
    works = [each.subject.program.instructions.work for each in (known, alone)]
    assert (works[0] == works[1]).all()
    assert known.device_stretch == 1.0


def test_steps_without_any_time_of_their_own_are_as_they_are() -> None:
    trace = Trace()
    trace.launch("before", 5_000)
    for _ in range(_STEPS):
        with trace.step():
            trace.work(10)
            trace.call("cudaEventQuery", 5)
    timeline = trace.timeline()
    at = moments(timeline)
    timeline = replace(timeline, host_times=HostTimes(at, np.zeros(len(at), np.int64)))
    known = modelled(timeline, plain_step_ns=5_000)
    assert (known.undistorted_step_ns, known.device_stretch) == (0, 1.0)


def test_data_that_comes_late_in_some_steps_goes_on_to() -> None:
    """As of four workers, of which one is slow: 40 ms each fourth step, of which a median of steps knows nothing."""

    def loading(more_work: float, more_call: float, late_us: float = 40_000) -> Timeline:
        trace = Trace()
        for number in range(8):
            with trace.step():
                trace.next_batch(late_us if number % 4 == 2 else 10)
                for op in HOST_BOUND:
                    _do(trace, op, more_work, 5 + more_call)
                trace.work(3)
        return trace.timeline()

    timeline = told(loading(3, 2), loading(0, 0, late_us=10))
    plain_ns = settles_to(loading(0, 0))
    assert modelled(timeline).undistorted_step_ns == pytest.approx(plain_ns, rel=0.02)
    met = modelled(timeline, plain_step_ns=round(1.02 * plain_ns))
    assert met.undistorted_step_ns == pytest.approx(1.02 * plain_ns, rel=0.02)


def test_a_pause_of_one_recorded_step_is_left_out_once() -> None:
    """A collection of garbage, say, of 90 ms in the third of four steps."""

    def pausing(after_steps: int) -> Timeline:
        trace = Trace()
        for number in range(_STEPS):
            with trace.step():
                for op in HOST_BOUND:
                    _do(trace, op, 3, 7)
                if number == after_steps:
                    trace.work(90_000)
                trace.launch("last", 10)
                trace.work(3)
        return trace.timeline()

    plain = made([*HOST_BOUND, Op("launch", 0)])
    for after_steps in (-1, 2):
        known = modelled(told(pausing(after_steps), plain))
        assert known.undistorted_step_ns == pytest.approx(settles_to(plain), rel=0.005)


def test_a_launch_that_waits_for_room_alone_is_no_work_of_the_hosts() -> None:
    """Without the recorder the host is fast enough to fill the launch queue of a device that takes 30 us an op."""
    ops = [Op("launch", 20, 30)] * 10
    recorded = made(ops, 11)
    moment, alone = moments(recorded), [0]
    for begun, done in itertools.pairwise(moment):
        is_call = done - begun == 5_000
        alone.append(alone[-1] + (25_000 if is_call else min(done - begun, 5_000)))
    timeline = replace(recorded, host_times=HostTimes(moment, np.array(alone)))
    do = modelled(timeline).subject.program.instructions
    assert do.call.max() <= 5_000


def test_times_of_some_steps_leave_the_others_at_the_usual_cost() -> None:
    recorded, plain = made(HOST_BOUND, 3, 2), made(HOST_BOUND)
    whole = told(recorded, plain)
    half = len(whole.host_times) // 2
    some = replace(whole, host_times=HostTimes(whole.host_times.recorded[:half], whole.host_times.alone[:half]))
    works = [modelled(each).subject.program.instructions.work for each in (whole, some, replace(recorded))]
    launches = modelled(whole).subject.program.instructions.code == Code.LAUNCH
    first, last = np.flatnonzero(launches)[[1, -1]]
    assert works[0][first] == works[1][first] == 20_000
    assert works[0][last] == 20_000
    assert works[1][last] == works[2][last]


@pytest.mark.parametrize("far_us", [-50_000, 50_000])
def test_times_of_another_moment_are_not_what_a_step_time_is_from(far_us: int) -> None:
    timeline = told(made(HOST_BOUND, 3, 2), made(HOST_BOUND))
    times = timeline.host_times
    elsewhere = replace(timeline, host_times=HostTimes(times.recorded + 1000 * far_us, times.alone))
    assert modelled(elsewhere).undistorted_by == "usual cost"


@A_FEW
@given(
    ops=OPS,
    alone=st.lists(st.integers(0, 10**6), min_size=2, max_size=20),
    far=st.integers(-(10**6), 10**6),
    plain_step_ns=st.none() | st.integers(1, 2**62 - 1),
)
def test_whatever_a_file_says_of_the_host_no_figure_is_beyond_the_step(
    ops: list[Op], alone: list[int], far: int, plain_step_ns: int | None
) -> None:
    timeline = made(ops)
    first, last = (moments(timeline)[[0, -1]] + far).tolist()
    at = np.linspace(first, last, len(alone)).astype(np.int64)
    said = replace(timeline, host_times=HostTimes(at, np.cumsum([0, *alone[1:]])))
    result = explain(said, plain_step_ns=plain_step_ns).result
    assume(result.replay is not None)
    assert result.replay is not None and result.floor_ns is not None and result.plan is not None  # noqa: PT018
    step_ns, accounts = result.replay.undistorted_mean_step_ns, result.replay.accounts
    assert 0 <= result.floor_ns <= step_ns
    assert all(finding.gain_ns is None or finding.gain_ns <= step_ns for finding in result.findings)
    assert all(0 <= each.step_ns <= step_ns and each.gain_ns >= 0 for each in result.plan)
    assert sum(astuple(accounts.busy_ns)) + sum(astuple(accounts.idle_ns)) == accounts.wall_ns


def test_a_report_says_where_its_step_time_is_from() -> None:
    said = explain(told(made(HOST_BOUND, 3, 2), made(HOST_BOUND))).result.verdict.text
    assert "by steps in which the host alone was timed" in said


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.gz")), ids=lambda path: path.name.partition(".")[0])
def test_of_real_recordings_the_plain_step_time_comes_back_that_is_withheld(path: Path) -> None:
    """Recorded on an H200 by `benchmarks/recording_undistorted.py`; frames and the machine's details are left out."""
    timeline = load(path)
    plain_ns = timeline.meta.plain_step_ns
    known = modelled(replace(timeline, meta=replace(timeline.meta, plain_step_ns=None)))
    assert known.undistorted_by == "host-only steps"
    assert known.undistorted_step_ns == pytest.approx(plain_ns, rel=0.05)
    assert known.measured_step_ns > 1.1 * known.undistorted_step_ns
