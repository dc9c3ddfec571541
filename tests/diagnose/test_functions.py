"""Rows of call stacks that are lines of the same call of a function."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from profiles import examples
from programs import Program, programs
from traces import TraceBuilder

from unstall.locate.functions import functions
from unstall.timeline.columns import Timeline


def by_line(lines: str) -> Timeline:
    """`train` calls `forward` from two of its lines, and that calls itself."""
    trace = TraceBuilder(operators=False, unstall={"lines": lines})
    for line in (30, 31):
        with trace.frame("train.py", line, "train"):
            for inner in (51, 52):
                with trace.frame("net.py", inner, "forward"):
                    trace.launch()
                    with trace.frame("net.py", 51, "forward"):
                        trace.launch()
    return trace.timeline()


def test_lines_of_one_call_are_one_function_and_a_call_of_itself_is_another() -> None:
    timeline = by_line("exact")
    of = functions(timeline)
    assert len(timeline.stacks) == 2 + 4 + 4
    functions_found = np.unique(of.row)
    assert len(functions_found) == 3
    outer, inner, innermost = functions_found.tolist()
    assert [of.parent[row] for row in (outer, inner, innermost)] == [-1, outer, inner]


def test_where_lines_are_functions_first_every_row_is_its_own() -> None:
    timeline = by_line("def")
    of = functions(timeline)
    assert of.row.tolist() == list(range(len(timeline.stacks)))
    assert of.parent.tolist() == timeline.stacks.parent.tolist()


@examples(20)
@given(programs())
def test_the_same_holds_of_any_program(program: Program) -> None:
    timeline = program.timeline()
    of = functions(timeline)
    assert of.row.tolist() == list(range(len(timeline.stacks)))
    assert of.parent.tolist() == timeline.stacks.parent.tolist()
