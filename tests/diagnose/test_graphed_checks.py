"""What unstall.graphed proves while it is recorded is told as such."""

from __future__ import annotations

import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.fix.graphs.serving import GraphServer
from unstall.locate.proving import METHODS


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


def steps_that_prove(*proving: int, steps: int) -> TraceBuilder:
    """Steps of the user's function. Those with these numbers also run it within a proof, on a stream of unstall's."""
    trace = TraceBuilder()
    for number in range(steps):
        with trace.step(), trace.frame("train.py", 12, "train"):
            if number in proving:
                with (
                    trace.frame("unstall/fix/graphs/serving.py", 250, "GraphServer._capture"),
                    trace.frame("train.py", 30, "step"),
                    trace.op("aten::mm"),
                ):
                    trace.launch("gemm", 900, stream=20)
                    trace.sync()
            with trace.op("aten::mm"):
                trace.launch("gemm", 100)
                trace.sync()
    return trace


def test_steps_that_prove_are_left_out_and_told_in_one_line() -> None:
    alone, after = (result_of(steps_that_prove(*proving, steps=9)) for proving in ((), (0, 1, 2)))
    assert (after.steps.count, alone.steps.count) == (6, 9)
    assert after.steps.mean_ns == pytest.approx(alone.steps.mean_ns, rel=0.05)
    (note,) = (note for note in after.integrity.notes if "proves" in note or "before the steps" in note)
    assert note.startswith("left out: 3 steps in which unstall.graphed proves its graphs")


def test_the_longest_stretch_between_proofs_is_what_is_explained() -> None:
    result = result_of(steps_that_prove(0, 3, steps=10))
    assert result.steps.count == 6
    assert any("2 steps in which" in note and "and 2 steps apart" in note for note in result.integrity.notes)


def test_no_finding_is_about_a_proof() -> None:
    of_all = result_of(steps_that_prove(0, 1, 2, steps=3))
    assert of_all.steps.count == 3
    assert {finding.where.line for finding in of_all.findings} == {12}
    assert ("unstall/fix/graphs/serving.py", 250) in {(each.where.file, each.where.line) for each in of_all.lines}
