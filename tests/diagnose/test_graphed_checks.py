"""What unstall.graphed proves while it is recorded is told as such."""

from __future__ import annotations

import pytest
from findings import result_of
from traces import TraceBuilder

from unstall.diagnose.graphed_checks import CHECKING
from unstall.fix.graphs.serving import GraphServer


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
    assert all(callable(getattr(GraphServer, name)) for name in CHECKING)
