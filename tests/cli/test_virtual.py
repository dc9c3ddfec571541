"""Which part of a run on the virtual GPU `unstall run --gpu` explains."""

from __future__ import annotations

import pytest
from traces import TraceBuilder

from unstall.cli import parse
from unstall.cli._virtual import part_asked_for
from unstall.errors import UsageError
from unstall.locate.steps import find_steps
from unstall.timeline import Timeline


def _run(steps: int) -> Timeline:
    trace = TraceBuilder()
    for _ in range(steps):
        with trace.step():
            trace.launch("gemm", 100)
            trace.sync()
    return trace.timeline()


def test_steps_are_counted_after_those_let_go_by() -> None:
    part = part_asked_for(_run(10), parse(["run", "--warmup", "4", "--steps", "3", "train.py"]))
    assert len(find_steps(part)) == 3


def test_a_warm_up_of_all_steps_is_told_how_many_there_are_and_what_to_give() -> None:
    with pytest.raises(UsageError) as raised:
        part_asked_for(_run(10), parse(["run", "--warmup", "12", "train.py"]))
    assert str(raised.value) == (
        "found 10 steps in the run, of which --warmup 12 leaves none to explain: give --warmup 9 or less"
    )


@pytest.mark.parametrize("asked", [["--warmup", "1"], ["--steps", "3"]])
def test_where_there_are_no_steps_it_is_said_how_to_mark_them(asked: list[str]) -> None:
    with pytest.raises(
        UsageError, match=r"no steps were found in the run, .* unstall\.step\(\), or .* --after and --f"
    ):
        part_asked_for(_run(0), parse(["run", *asked, "train.py"]))
