"""Who encloses whom, against comparing each event with every other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unstall.read.nest import find_parents
from unstall.timeline.columns import HostKind

Interval = tuple[HostKind, int, int, int]  # kind, thread, start, end
SOLID = (HostKind.OP, HostKind.PYTHON, HostKind.LAUNCH)
PAUSES = st.integers(0, 2)


@dataclass
class Clock:
    now: int = 0


@st.composite
def recordings(draw: st.DrawFn) -> list[Interval]:
    """Properly nested events of two threads, and annotations that begin inside one frame and end inside another."""
    rows: list[Interval] = []

    def pause(clock: Clock) -> int:
        clock.now += draw(PAUSES)
        return clock.now

    def nested(kind: HostKind, thread: int, clock: Clock, depth: int) -> None:
        at = len(rows)
        start = pause(clock)
        for _ in range(draw(st.integers(0, 3)) if depth else 0):
            block(thread, clock, depth - 1)
        rows.insert(at, (kind, thread, start, pause(clock)))

    def crossing(thread: int, clock: Clock, depth: int) -> None:
        """`with record_function(…)`: the annotation is longer than the frames that its ends lie in."""
        enter = clock.now
        clock.now += 1
        start = pause(clock)
        nested(HostKind.OP, thread, clock, 0)
        clock.now += 1
        rows.append((HostKind.PYTHON, thread, enter, clock.now))
        for _ in range(draw(st.integers(1, 2))):
            block(thread, clock, depth - 1)
        leave = clock.now
        clock.now += 1
        rows.append((HostKind.ANNOTATION, thread, start, clock.now))
        clock.now += 1
        rows.append((HostKind.PYTHON, thread, leave, clock.now))

    def block(thread: int, clock: Clock, depth: int) -> None:
        if depth and draw(st.booleans()):
            crossing(thread, clock, depth)
        else:
            nested(draw(st.sampled_from(SOLID)), thread, clock, depth)

    for thread in range(2):
        clock = Clock()
        for _ in range(draw(st.integers(0, 3))):
            block(thread, clock, 3)
    return in_order(rows)


def in_order(rows: list[Interval]) -> list[Interval]:
    return sorted(rows, key=lambda row: (row[1], row[2], -row[3]))


def parents(rows: list[Interval]) -> list[int]:
    kind, thread, start, end = (np.array([row[i] for row in rows], np.int64) for i in range(4))
    found: list[int] = find_parents(kind.astype(np.int8), thread.astype(np.int32), start, end).tolist()
    return found


def encloses(outer: Interval, inner: Interval) -> bool:
    same_thread = outer[1] == inner[1]
    open_still = inner[2] < outer[3] or inner[2] == outer[2]
    return same_thread and outer[2] <= inner[2] and inner[3] <= outer[3] and open_still


def parents_by_comparison(rows: list[Interval]) -> list[int]:
    found = []
    for i, row in enumerate(rows):
        around = [j for j in range(i) if encloses(rows[j], row)]
        solid = max((j for j in around if rows[j][0] != HostKind.ANNOTATION), default=-1)
        span = max((j for j in around if rows[j][0] == HostKind.ANNOTATION), default=-1)
        fits = span >= 0 and (solid < 0 or encloses(rows[solid], rows[span]))
        found.append(span if fits else solid)
    return found


@given(recordings())
def test_the_parent_is_the_innermost_event_around(rows: list[Interval]) -> None:
    assert parents(rows) == parents_by_comparison(rows)


def test_an_annotation_comes_between_a_frame_and_what_it_called() -> None:
    rows = [
        (HostKind.PYTHON, 0, 0, 100),  # train()
        (HostKind.PYTHON, 0, 10, 20),  # __enter__
        (HostKind.ANNOTATION, 0, 15, 85),
        (HostKind.PYTHON, 0, 17, 18),  # what __enter__ calls after the annotation began
        (HostKind.OP, 0, 30, 70),
        (HostKind.PYTHON, 0, 80, 90),  # __exit__
    ]
    assert parents(rows) == [-1, 0, 0, 1, 2, 0]


@pytest.mark.parametrize("over", [1, 900])
def test_a_child_that_outlives_its_parent_counts_as_ending_with_it(over: int) -> None:
    rows = [
        (HostKind.OP, 0, 0, 10_000),
        (HostKind.OP, 0, 2_000, 10_000 + over),
        (HostKind.LAUNCH, 0, 3_000, 10_000 + over),
        (HostKind.OP, 0, 10_000, 20_000),
    ]
    assert parents(rows) == [-1, 0, 1, -1]


def test_threads_do_not_enclose_each_other() -> None:
    assert parents([(HostKind.OP, 0, 0, 100), (HostKind.OP, 1, 10, 20)]) == [-1, -1]


def test_no_events_have_no_parents() -> None:
    assert parents([]) == []
