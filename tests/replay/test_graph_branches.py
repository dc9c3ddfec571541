"""Graphs on several streams: what their launches did comes back, and an edit of a branch does what it would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from profiles import examples
from replay.forks import Node, Step, run, scattered, steps
from replay.recorded import program_of
from replay.running import with_columns

from unstall.diagnose.analyse import analyse
from unstall.locate.steps import find_steps
from unstall.replay.engine import replay
from unstall.replay.program import Program
from unstall.timeline.columns import HostKind, Timeline
from unstall.virtual.timeline.window import cut

_CLOSE = 0.01
_UNSEEN_NS = 2_000  # delays that no op of so short a run had for a single cause

LONG, SHORT = 100_000, 30_000
FORK = (
    Node(0, 5_000),
    Node(1, SHORT, waits_for=(0,)),
    Node(0, LONG),
    Node(0, 4_000, waits_for=(1,)),
    Node(1, 6_000, waits_for=(0,)),
    Node(0, 7_000, waits_for=(1,)),
)
"""A short branch beside a long one; then they meet, and the second stream is used again."""


def close(timeline: Timeline) -> None:
    program = program_of(timeline)
    start, end = analyse(timeline).steps.window
    measured = (end - start) / len(program.step_starts)
    assert abs(replay(program).mean_step_ns(program) - measured) <= _CLOSE * measured + _UNSEEN_NS


@examples(60)
@given(steps())
def test_a_replay_of_graphs_that_fork_and_join_takes_as_long_as_they_did(step: Step) -> None:
    close(run(step))


@examples(40)
@given(steps(), st.randoms(use_true_random=False))
def test_it_does_on_whatever_streams_the_graph_ran(step: Step, chance: Random) -> None:
    close(scattered(run(step), chance))


@pytest.mark.parametrize("waits", [True, False])
def test_each_op_starts_when_it_did(waits: bool) -> None:
    timeline = run(Step(FORK, before_ns=2_000, waits=waits))
    program = program_of(timeline)
    off = replay(program).op_start - timeline.device.start[program.ops.device]
    assert np.abs(off).max() <= _UNSEEN_NS


@examples(40)
@given(steps(), st.integers(1, 5))
def test_what_was_queued_before_the_part_that_is_seen_is_none_of_its_steps(step: Step, first: int) -> None:
    timeline = run(replace(step, waits=False), steps=10)
    begins = int(find_steps(timeline).start[first])
    close(cut(timeline, begins, int(timeline.host.end.max()) + 1))


def predicted(nodes: tuple[Node, ...], change: Callable[[int], int]) -> tuple[float, float]:
    """ns a step, before and after kernels take as long as `change` says, by their length."""
    program = program_of(run(Step(nodes)))
    changed = np.array([change(length) for length in program.ops.duration.tolist()])
    after = with_columns(program, ops_duration=changed)
    return replay(program).mean_step_ns(program), replay(after).mean_step_ns(after)


def test_a_faster_branch_that_nothing_waited_for_gains_nothing() -> None:
    before, after = predicted(FORK, lambda ns: 1_000 if SHORT <= ns < LONG else ns)
    assert after == pytest.approx(before, abs=1)


def test_a_faster_branch_gains_until_the_one_beside_it_is_the_longer() -> None:
    before, after = predicted(FORK, lambda ns: 1_000 if ns >= LONG else ns)
    assert before - after == pytest.approx(LONG - SHORT, abs=2_000)


def test_a_slower_branch_costs_once_it_is_the_longer() -> None:
    before, after = predicted(FORK, lambda ns: LONG + 20_000 if SHORT <= ns < LONG else ns)
    assert after - before == pytest.approx(20_000, abs=2_000)


def launched_where(timeline: Timeline) -> set[int]:
    """Streams that the graphs' launches are told to use in the timeline's program."""
    do = program_of(timeline).instructions
    kind = timeline.host.kind[np.maximum(do.host, 0)]
    chosen = (do.host >= 0) & (kind == HostKind.GRAPH_LAUNCH) & (np.diff(do.ops, prepend=0) > 0)
    return set(do.stream[chosen].tolist())


def test_a_graph_is_launched_on_the_stream_of_the_calls_around_it() -> None:
    timeline = run(Step(FORK, before_ns=2_000, after_ns=2_000))
    own = set(timeline.device.stream[[0]].tolist())
    assert launched_where(timeline) == own
    assert launched_where(scattered(timeline, Random(1))) == own


def test_where_nothing_else_is_launched_all_graphs_are_on_one_stream() -> None:
    timeline = scattered(run(Step(FORK)), Random(1))
    assert len(launched_where(timeline)) == 1


def test_a_long_op_after_a_graph_says_nothing_of_gaps() -> None:
    """The next op on the launching stream waits for all branches, and not for a gap of its own."""
    nodes = (Node(0, 2_000), Node(1, 90_000, waits_for=(0,)), Node(0, 2_000))
    program = program_of(run(Step(nodes, after_ns=2_000)))
    assert program.ops.gap.max() < 5_000


def test_a_step_without_graphs_has_no_branches() -> None:
    def follows(program: Program) -> int:
        return int((program.ops.after >= 0).sum())

    assert follows(program_of(run(Step((Node(0, 5_000), Node(0, 5_000)))))) == 0


@settings(max_examples=1)
@example(Step((Node(2, 21_555), Node(0, 10_723), Node(1, 17_487)), before_ns=2_000, waits=False))
@given(steps())
def test_branches_that_begin_with_the_graph_begin_with_it(step: Step) -> None:
    close(run(step))
