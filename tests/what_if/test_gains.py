"""What mending each finding would gain, and in which order to mend them."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from recordings import ALL, recording
from traces import TraceBuilder

from unstall.diagnose.explain import RESOURCE_OF, Diagnosis, explain
from unstall.replay.program import Program
from unstall.replay.steady import steady_step_ns
from unstall.report.explain import gain_of
from unstall.result import Finding, Result
from unstall.what_if import predict as predict_module
from unstall.what_if.before_graphs import NEEDED
from unstall.what_if.edits import parse
from unstall.what_if.gains import NOTHING_YET
from unstall.what_if.model import Model, model
from unstall.what_if.predict import plan, predict

SMALL = [path for path in ALL if path.stat().st_size < 150_000]
LARGE = [path for path in ALL if path not in SMALL]
OF_HOST = ("remove-syncs", "keep-cache", "host-speed", "graph")


@functools.cache
def report(path: Path) -> Diagnosis:
    return explain(path)


def model_of(found: Diagnosis) -> Model:
    assert found.run is not None
    return model(found.run.timeline, found.run.steps, found.run.places)


def check(path: Path) -> None:
    found = report(path)
    result = found.result
    if result.replay is None:
        return
    known = model_of(found)
    step = known.undistorted_step_ns
    edits = {finding.edit for finding in result.findings if finding.edit}
    gains = {edit: step - steady_step_ns(parse(edit).apply(known.subject).program) for edit in edits}
    for finding in result.findings:
        if finding.edit is not None and finding.gain_ns is not None:
            assert finding.gain_ns == round(gains[finding.edit]), finding.edit
    check_plan(result, step)


def check_plan(result: Result, step: float) -> None:
    assert result.plan is not None
    for made in result.plan:
        assert made.step_ns < step
        assert made.gain_ns == pytest.approx(step - made.step_ns, abs=2)
        step = made.step_ns
    assert len({made.edit for made in result.plan}) == len(result.plan)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_edit_of_a_recorded_runs_findings_gains_what_replaying_it_does(path: Path) -> None:
    check(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_edit_of_a_long_runs_findings_gains_what_replaying_it_does(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_findings_are_in_order_of_what_they_gain(path: Path) -> None:
    known = [f for f in report(path).result.findings if not f.harmless]
    freed = report(path).result.verdict.if_free or {}

    fixes = {f.edit: f for f in known if f.gain_ns is not None or f.gain_below_ns is not None}

    def gain(finding: Finding) -> int:
        """Within the replay's error it is nothing; if unknown, no more than what the free resource gains. What another
        finding's change fixes too stands behind that one."""
        if finding.edit in fixes:
            assert known.index(fixes[finding.edit]) <= known.index(finding)
            return fixes[finding.edit].gain_ns or 0
        return min(finding.exposed_ns, freed.get(RESOURCE_OF.get(finding.rule, ""), finding.exposed_ns))

    gains = list(map(gain, known))
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_nothing_worth_changing_is_said_to_cost_nothing_and_what_gains_in_the_plan_alone_says_so(path: Path) -> None:
    result = report(path).result
    numbers = {made.edit: number for number, made in enumerate(result.plan or (), 1)}
    for finding in result.findings:
        if finding.harmless:
            continue
        assert not finding.saw.endswith("costs next to nothing")
        if finding.gain_ns is not None and finding.gain_ns < 0:
            assert f"as step {numbers[finding.edit or '']} of the plan " in finding.saw


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_what_only_the_host_does_differently_leaves_the_device_its_time(path: Path) -> None:
    result = report(path).result
    for made in result.plan or ():
        if not made.edit.startswith(OF_HOST):
            break
        assert result.floor_ns is not None
        if not made.edit.startswith("graph"):  # a graph's own gaps are shorter, and its ops are not
            assert made.step_ns >= 0.99 * result.floor_ns


def test_a_gain_that_several_findings_share_is_told_once_and_said_to_be_theirs() -> None:
    result = report(recording("bert_amp.no_stacks")).result
    sharing = [finding for finding in result.findings if finding.edit == "graph"]
    assert len(sharing) > 1
    told = [finding for finding in sharing if finding.gain_ns is not None]
    assert len(told) == 1
    assert told[0].saw.endswith(f"; the same change fixes {len(sharing)} findings, and the gain is that of all")
    number = result.costly.index(told[0]) + 1
    assert {gain_of(result, each) for each in sharing if each in result.costly[number:]} == {f"in {number}"}


def stalled() -> TraceBuilder:
    """Per step: an upload of 100 µs that blocks, kernels of 60 and 100 µs, a value that is read, 20 µs of work."""
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            with trace.frame("data.py", 5, "load"), trace.op("aten::to"):
                trace.copy("HtoD", 100, memory="Pageable", size=1_000_000)
            trace.launch("gemm", 60)
            trace.launch("gemm", 100)
            with trace.frame("log.py", 7, "log"):
                trace.item()
            trace.work(200)
    return trace


EDITS = ("host-speed:1", "remove-syncs:log.py:7", "pin-copies:data.py:5")


def as_recorded(trace: TraceBuilder) -> Model:
    found = explain(trace.timeline(), as_recorded=True)
    assert found.run is not None
    return model(found.run.timeline, found.run.steps, found.run.places, as_recorded=True)


def test_a_plan_is_of_what_gains_each_the_best_that_is_left() -> None:
    known = as_recorded(stalled())
    made = plan(known, [parse(edit) for edit in EDITS])
    alone = {edit: predict(known, [parse(edit)])[0].gain_ns for edit in EDITS}
    assert alone["host-speed:1"] == 0
    assert made[0].edit.text == max(alone, key=alone.__getitem__)
    assert {p.edit.text for p in made} <= set(EDITS[1:])
    assert [p.gain_ns for p in made] == sorted((p.gain_ns for p in made), reverse=True)


def test_the_plans_steps_are_what_its_edits_make_one_after_the_other() -> None:
    known = as_recorded(stalled())
    made = plan(known, [parse(edit) for edit in EDITS])
    again = predict(known, [p.edit for p in made])
    assert [p.step_ns for p in made] == [p.step_ns for p in again]
    assert len(made) == 2


def test_nothing_to_gain_is_no_plan() -> None:
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            trace.launch("gemm", 100)
    assert plan(as_recorded(trace), [parse("remove-syncs"), parse("host-speed:2")]) == []


def test_each_edits_notes_are_its_own() -> None:
    known = as_recorded(stalled())
    overlap, pin = predict(known, [parse("overlap-copies"), parse("pin-copies")])
    assert [len(p.notes) for p in (overlap, pin)] == [1, 0]


def test_a_copy_that_can_overlap_once_it_is_pinned_is_in_the_plan() -> None:
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            with trace.frame("data.py", 5, "load"), trace.op("aten::to"):
                trace.copy("HtoD", 500, memory="Pageable", size=5_000_000)
            for _ in range(3):
                trace.launch("gemm", 100)
    known = as_recorded(trace)
    edits = [parse("overlap-copies:data.py:5"), parse("pin-copies:data.py:5"), parse("host-speed:1")]
    assert [made.edit.text for made in plan(known, edits)] == ["pin-copies:data.py:5", "overlap-copies:data.py:5"]


def test_a_copy_and_a_wait_behind_it_that_gain_only_together_are_planned_together() -> None:
    """Whichever of the two the host waits at, it waits for the same kernels."""
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            trace.launch("gemm", 1_000)
            with trace.frame("data.py", 5, "store"), trace.op("aten::to"):
                trace.copy("DtoH", 5, memory="Pageable", size=50_000)
            with trace.frame("log.py", 7, "log"):
                trace.sync("device")
            trace.work(500)
    known = as_recorded(trace)
    edits = [parse("read-later:data.py:5"), parse("remove-syncs:log.py:7"), parse("host-speed:1")]
    alone = [predict(known, [edit])[0].gain_ns for edit in edits]
    assert max(alone) < 0.01 * known.undistorted_step_ns
    made = plan(known, edits)
    assert [p.edit.text for p in made] == ["read-later:data.py:5", "remove-syncs:log.py:7"]
    assert made[-1].step_ns == pytest.approx(1_005_000, rel=0.01)


def test_trying_edits_together_takes_a_bounded_number_of_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """One each alone, one each kind and one for all together, one each to drop, and one each to tell its gain."""
    known, count = as_recorded(stalled()), 0
    edits = [parse("host-speed:1"), parse("kernel-speed:1"), *[parse("kernel-speed:1:train.py:10")] * 4]

    def counted(program: Program) -> float:
        nonlocal count
        count += 1
        return steady_step_ns(program)

    monkeypatch.setattr(predict_module, "steady_step_ns", counted)
    assert plan(known, edits) == []
    assert count <= len(edits) + 2 + 1


def test_a_step_of_the_plan_that_gains_more_than_its_finding_does_alone_says_so() -> None:
    """Two waits on one path: without either one the host waits as long at the other."""
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            trace.launch("gemm", 100)
            for line in (5, 6):
                with trace.frame("log.py", line, f"log_{line}"):
                    trace.item()
            trace.work(80)
    result = explain(trace.timeline(), as_recorded=True).result
    assert result.plan
    alone = {finding.edit: finding.gain_ns or 0 for finding in result.findings}
    beyond = [made for made in result.plan if made.gain_ns > 2 * alone[made.edit] + 2_000]
    assert beyond
    assert all("; after the changes above it, " in made.notes[-1] for made in beyond)


def short_kernels_and_a_wait(*, inside: bool) -> TraceBuilder:
    """Per step: 30 short kernels that `forward` launches, and a value that is read within it, or after it."""
    trace = TraceBuilder(enter_us=30)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            with trace.frame("model.py", 20, "forward"):
                for number in range(30):
                    with trace.op("aten::add"):
                        trace.launch("add", 12)
                    if inside and number == 20:
                        with trace.frame("log.py", 7, "log"), trace.op("aten::item"):
                            trace.item()
            if not inside:
                with trace.frame("log.py", 7, "log"), trace.op("aten::item"):
                    trace.item()
            trace.work(20)
    return trace


@pytest.mark.parametrize("inside", [True, False])
def test_the_plan_removes_what_a_graph_cannot_contain_before_it_captures_the_graph(inside: bool) -> None:
    result = explain(short_kernels_and_a_wait(inside=inside).timeline(), as_recorded=True).result
    assert result.plan
    edits = [made.edit.partition(":")[0] for made in result.plan]
    gains = {finding.edit: finding.gain_ns or 0 for finding in result.findings}
    assert max(gains, key=gains.__getitem__) == "graph:model.py:forward"
    assert edits == (["remove-syncs", "graph"] if inside else ["graph", "remove-syncs"])
    assert (NEEDED in result.plan[0].notes) == inside
    again = predict(as_recorded(short_kernels_and_a_wait(inside=inside)), [parse(made.edit) for made in result.plan])
    assert [made.step_ns for made in result.plan] == [round(made.step_ns) for made in again]


def test_the_plan_and_the_advice_to_capture_a_graph_have_one_order() -> None:
    result = explain(short_kernels_and_a_wait(inside=True).timeline(), as_recorded=True).result
    graph, wait = (next(f for f in result.costly if f.rule.startswith(rule)) for rule in ("launch-bound", "sync-"))
    assert graph.fix.startswith(f"first finding {result.costly.index(wait) + 1} ")
    assert [made.edit for made in result.plan or ()] == [wait.edit, graph.edit]


def test_a_change_of_the_plan_that_gains_nothing_yet_says_what_it_is_for() -> None:
    """Three waits on one path: only without all of them does the host get ahead."""
    trace = TraceBuilder(enter_us=0.001)
    for _ in range(5):
        with trace.step(), trace.frame("train.py", 10, "step"):
            trace.launch("gemm", 100_000)
            for line in (5, 6, 7):
                with trace.frame("log.py", line, f"log_{line}"):
                    trace.sync("device")
            trace.work(50_000)
    result = explain(trace.timeline(), as_recorded=True).result
    assert result.plan
    assert result.replay
    nothing = [made.gain_ns < 0.0005 * result.replay.undistorted_mean_step_ns for made in result.plan]
    assert nothing == [True, True, False]
    assert [NOTHING_YET in made.notes for made in result.plan] == nothing


_RESOURCES_OF = {
    "launch": ["host"],
    "python": ["host", "sleep"],
    "device": ["kernels"],
    "copy": ["copies"],
    "comm": ["communication"],
    "sync": ["waits"],
    "input": ["input"],
    "allocator": ["allocator"],
    "startup": ["startup"],
}


_REPLAYED = [path for path in SMALL if "no_device" not in path.name]


@pytest.mark.parametrize("path", _REPLAYED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_what_bounds_a_run_is_what_it_gains_most_by(path: Path) -> None:
    result = report(path).result
    freed, replay, bound = result.verdict.if_free, result.replay, result.verdict.bound_by
    assert freed is not None
    assert replay is not None
    step, most = replay.undistorted_mean_step_ns, max(freed.values())
    if bound == "mixed":  # two gain alike, or none gains anything
        assert sorted(freed.values())[-2] >= most - 0.03 * step - 1 or most < 0.03 * step + 1
    elif bound in _RESOURCES_OF:
        assert max(freed[name] for name in _RESOURCES_OF[bound]) >= most - 0.03 * step - 1
    else:
        assert most < 0.03 * step + 1


@pytest.mark.parametrize("path", _REPLAYED, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_no_gain_within_the_replays_own_error_is_a_figure(path: Path) -> None:
    result = report(path).result
    assert result.replay is not None
    gains = [finding.gain_ns for finding in result.findings if finding.gain_ns is not None]
    assert all(abs(gain) >= result.replay.error_ns for gain in gains)
    assert all(finding.gain_ns is None or finding.gain_below_ns is None for finding in result.findings)
