"""Of the functions around launches that come late the one is named whose graph gains most, as replays have it."""

from __future__ import annotations

from findings import only, place
from traces import TraceBuilder

from unstall.result import Finding


def small(trace: TraceBuilder, count: int) -> None:
    for number in range(count):
        with trace.op("aten::relu"):
            trace.launch(f"kernel_{number}", 2)


def loop(*, forward: int, blocks: int = 1, rest: int, outside: int = 0, steps: int = 4) -> Finding:
    """`main` calls `train` in each step; that calls `block`, with launches of its own after each call."""
    trace = TraceBuilder(launch_us=20)
    with trace.frame("train.py", 1, "main"):
        for _ in range(steps):
            with trace.step():
                with trace.frame("train.py", 12, "train"):
                    for _ in range(blocks):
                        with trace.frame("net.py", 30, "block"):
                            small(trace, forward)
                        small(trace, rest)
                small(trace, outside)
                trace.item()
    return only(trace, "launch-bound")


def test_a_step_of_which_a_part_holds_most_is_captured_as_a_whole() -> None:
    finding = loop(forward=85, rest=15, outside=1)
    assert place(finding) == ("train.py", 12, "train")
    assert finding.edit == "graph:train.py:train"
    assert finding.count == 4 * 100


def test_of_functions_that_gain_the_same_it_is_the_one_that_makes_fewest_graphs() -> None:
    """Four blocks with a launch between them: four graphs gain nearly what one does."""
    assert loop(forward=20, blocks=4, rest=1, outside=1).edit == "graph:train.py:train"


def test_a_function_that_holds_the_loop_is_not_captured_for_a_little_more() -> None:
    assert loop(forward=100, rest=0, outside=10).edit == "graph:net.py:block"


def test_what_stands_in_no_function_must_become_one() -> None:
    trace = TraceBuilder(launch_us=20)
    with trace.frame("train.py", 1, "<module>"):
        for _ in range(4):
            with trace.step():
                small(trace, 50)
    finding = only(trace, "launch-bound")
    assert finding.fix.startswith("put what each step does here into a function, and capture that in a CUDA graph")
