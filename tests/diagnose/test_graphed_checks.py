"""What unstall.graphed proves while it is recorded is told as such."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from findings import only, result_of
from traces import TraceBuilder, steps_that_prove

from unstall.diagnose.explain import explain
from unstall.fix.graphs.graphed_function import GraphedFunction
from unstall.fix.graphs.serving import GraphServer
from unstall.locate.proving import EAGERLY, FOR_SPEED, METHODS
from unstall.report.verdict_text import in_short
from unstall.report.wording import steps_line
from unstall.timeline.columns import StepsLeftOut
from unstall.virtual.profiler.trace_file import write_trace


def recorded(function: str, *, us: float) -> TraceBuilder:
    trace = TraceBuilder()
    with trace.frame("train.py", 12, "train"), trace.frame("unstall/fix/graphs/serving.py", 250, function):
        for _ in range(4):
            with trace.op("aten::mm"):
                trace.launch("gemm", us)
    with trace.frame("train.py", 12, "train"), trace.op("aten::mm"):
        trace.launch("gemm", 1_000)
        trace.sync()
    return trace


def proofs(trace: TraceBuilder) -> list[str]:
    return [note for note in result_of(trace).integrity.notes if "checking its captures" in note]


@pytest.mark.parametrize("function", ["_capture", "GraphServer._capture", "GraphServer._observe"])
def test_a_recording_of_proofs_says_so(function: str) -> None:
    (note,) = proofs(recorded(function, us=5))
    assert note.startswith(("2.", "3."))


def test_a_call_that_is_served_is_no_proof() -> None:
    assert not proofs(recorded("GraphServer.__call__", us=5))


def test_a_recording_of_nothing_says_nothing_of_proofs() -> None:
    assert not proofs(TraceBuilder())


def test_proofs_are_made_below_these_methods() -> None:
    assert all(callable(getattr(GraphServer, name)) for name in METHODS)


def test_steps_that_prove_are_left_out_and_told_in_one_line() -> None:
    alone, after = (result_of(steps_that_prove(*proving, steps=9)) for proving in ((), (0, 1, 2)))
    assert (after.steps.count, alone.steps.count) == (6, 9)
    assert after.steps.mean_ns == pytest.approx(alone.steps.mean_ns, rel=0.05)
    told = steps_line(after.source, after.steps)
    assert "; left out: 3 in which unstall.graphed proves its graphs (" in told
    assert not [note for note in after.integrity.notes if "proves" in note or "before the steps" in note]


def test_the_longest_stretch_between_proofs_is_what_is_explained() -> None:
    result = result_of(steps_that_prove(0, 3, steps=10))
    assert result.steps.count == 6
    told = steps_line(result.source, result.steps)
    assert "; left out: 2 in which" in told
    assert told.endswith(" and 2 apart from the longest stretch of others")


def test_no_finding_is_about_a_proof() -> None:
    of_all = result_of(steps_that_prove(0, 1, 2, steps=3))
    assert of_all.steps.count == 3
    assert {finding.where.line for finding in of_all.findings} == {12}
    assert ("unstall/fix/graphs/serving.py", 250) in {(each.where.file, each.where.line) for each in of_all.lines}


def test_if_most_steps_prove_the_verdict_begins_with_how_few_its_figures_are_of() -> None:
    result = result_of(steps_that_prove(0, 2, 5, 6, 7, steps=10))
    assert result.verdict.text.startswith("These figures are of only 2 steps of 10. Left out: 5 in which ")
    assert " and 3 apart from the longest stretch of others. The steps left out take 6" in result.verdict.text
    assert "shapes of its inputs do not recur: pad them" in result.verdict.text
    assert in_short(result.verdict.text, result.integrity.shortfall).startswith("These figures are of only 2 steps")


def test_the_mean_of_the_steps_left_out_is_that_of_all_of_them() -> None:
    left_out = result_of(steps_that_prove(0, 2, 5, 6, 7, steps=10)).steps.left_out
    assert left_out is not None
    alone = result_of(steps_that_prove(steps=10)).steps.mean_ns
    proving = result_of(steps_that_prove(*range(10), steps=10)).steps.mean_ns
    assert left_out.mean_ns == pytest.approx((5 * proving + 3 * alone) / 8, rel=0.1)


def test_if_only_the_first_steps_prove_the_cure_is_a_longer_run() -> None:
    text = result_of(steps_that_prove(0, 1, 2, 3, steps=6)).verdict.text
    assert "Later steps prove nothing: let the program take more." in text
    assert "recur" not in text


def test_if_graphed_has_given_up_the_reason_is_not_guessed() -> None:
    text = result_of(steps_that_prove(0, 2, 5, 6, 7, steps=10, called_by=EAGERLY)).verdict.text
    assert "Now it runs them eagerly: print(….stats()) says why" in text
    assert "recur" not in text


def test_if_few_steps_prove_the_verdict_says_nothing_of_it() -> None:
    assert "left out" not in result_of(steps_that_prove(0, 1, 2, steps=9)).verdict.text


def test_a_trace_of_the_steps_that_count_remembers_the_others(tmp_path: Path) -> None:
    known = result_of(steps_that_prove(0, 2, 5, 6, 7, steps=10)).steps.left_out
    assert known is not None
    timeline = steps_that_prove(steps=2).timeline()
    left_out = StepsLeftOut(**msgspec.structs.asdict(known))
    told = timeline.with_meta(recorder="virtual", left_out=left_out)
    write_trace(told, tmp_path / "run.trace.json")
    assert explain(tmp_path / "run.trace.json").result.steps.left_out == known


def without_graph(method: str, *, kernels: int = 20) -> TraceBuilder:
    """A function that unstall.graphed calls by a method, and whose launches are late."""
    trace = TraceBuilder()
    calls = trace.frame("unstall/fix/graphs/graphed_function.py", 70, f"GraphedFunction.{method}")
    with trace.step(), trace.frame("train.py", 12, "train"), calls, trace.frame("model/net.py", 30, "forward"):
        for _ in range(kernels):
            with trace.op("aten::relu"):
                trace.launch("relu", 3)
    return trace


def test_functions_are_called_without_a_graph_by_these_methods() -> None:
    assert all(callable(getattr(GraphedFunction, name)) for name in (EAGERLY, FOR_SPEED))


def test_what_graphed_refused_is_not_told_to_become_a_graph_but_where_the_reason_is() -> None:
    finding = only(without_graph(EAGERLY), "launch-bound")
    assert finding.fix.startswith("unstall.graphed runs this eagerly: print(….stats()) says why")
    assert finding.edit == "graph:model/net.py:forward"


def test_where_a_graph_was_measured_to_gain_nothing_none_is_advised_or_predicted() -> None:
    finding = only(without_graph(FOR_SPEED), "launch-bound")
    assert finding.fix.startswith("unstall.graphed measured here that a graph gains nothing; fuse small operators")
    assert finding.edit is None
