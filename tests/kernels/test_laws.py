"""Laws: counts, races and sectors are those of a slow and obvious twin, for random small kernels."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

pytest.importorskip("numba", reason="numba: not installed")

from numba import cuda, int64

from unstall.kernels.inspect_kernel import inspect_kernel
from unstall.kernels.report import KernelReport

_SHARED, _GLOBAL = 4, 10
_DOES = {"read": "reads", "write": "writes", "atomic": "updates atomically"}
SCRIPT: Any = ()
"""SCRIPT[block][interval][thread] has what the thread does: (kind, space, index) of each access."""


@cuda.jit
def scripted(data):  # type: ignore[no-untyped-def]
    tile = cuda.shared.array(_SHARED, int64)
    for interval in SCRIPT[cuda.blockIdx.x]:
        for kind, space, index in interval[cuda.threadIdx.x]:
            memory = tile if space == "shared" else data
            if kind == "read":
                memory[index]
            elif kind == "write":
                memory[index] = 1
            else:
                cuda.atomic.add(memory, index, 1)
        cuda.syncthreads()


class Access(NamedTuple):
    kind: str
    space: str
    element: int
    block: int
    thread: int
    interval: int


def _accesses(script: Any) -> list[Access]:
    return [
        Access(kind, space, element, block, thread, interval)
        for block, intervals in enumerate(script)
        for interval, threads in enumerate(intervals)
        for thread, accesses in enumerate(threads)
        for kind, space, element in accesses
    ]


def _run(script: Any) -> KernelReport:
    global SCRIPT
    SCRIPT = script
    return inspect_kernel(scripted, len(script), len(script[0][0]), np.zeros(_GLOBAL, np.int64))


@st.composite
def _scripts(draw: st.DrawFn) -> Any:
    blocks, threads, intervals = (draw(st.integers(1, most)) for most in (2, 3, 3))
    access = st.one_of(
        st.tuples(st.sampled_from(sorted(_DOES)), st.just("shared"), st.integers(0, _SHARED - 1)),
        st.tuples(st.sampled_from(sorted(_DOES)), st.just("global"), st.integers(0, _GLOBAL - 1)),
    )
    return draw(_many(_many(_many(st.lists(access, max_size=3), threads), intervals), blocks))


def _many(of: st.SearchStrategy[Any], number: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, min_size=number, max_size=number)


@given(_scripts())
def test_counts_are_those_of_a_loop_over_all_accesses(script: Any) -> None:
    accesses = _accesses(script)
    for counts in _run(script).traffic.counts:
        for kind, amount in (("read", counts.reads), ("write", counts.writes), ("atomic", counts.atomics)):
            of_threads = Counter(
                (each.block, each.thread) for each in accesses if (each.kind, each.space) == (kind, counts.space)
            )
            assert (amount.total, amount.most) == (of_threads.total(), max(of_threads.values(), default=0))


def _race(one: Access, other: Access) -> str | None:
    if one.space != other.space or one.element != other.element or "write" not in (one.kind, other.kind):
        kinds = {one.kind, other.kind}
        if one.space != other.space or one.element != other.element or kinds != {"read", "atomic"}:
            return None
    if one.block != other.block:
        return "blocks" if one.space == "global" else None
    return "threads" if one.thread != other.thread and one.interval == other.interval else None


@given(_scripts())
def test_races_are_those_of_a_loop_over_all_pairs_of_accesses(script: Any) -> None:
    elements = defaultdict(set)
    for one, other in combinations(_accesses(script), 2):
        between = _race(one, other)
        if between is not None:
            block = one.block if between == "threads" else None
            kinds = tuple(sorted((_DOES[one.kind], _DOES[other.kind])))
            elements[one.space, between, kinds].add((block, one.element))
    found = {
        (race.space, race.between, tuple(sorted((race.first.does, race.second.does)))): race.elements
        for race in _run(script).races
    }
    assert found == {key: len(of) for key, of in elements.items()}


@given(_scripts())
def test_an_example_of_a_race_is_a_race(script: Any) -> None:
    accesses = _accesses(script)
    names = {does: kind for kind, does in _DOES.items()}
    for race in _run(script).races:
        one, other = (
            {
                each
                for each in accesses
                if (each.kind, each.space, (each.element,)) == (names[side.does], race.space, race.index)
                and ((each.block, 0, 0), (each.thread, 0, 0)) == (side.block, side.thread)
            }
            for side in (race.first, race.second)
        )
        assert any(_race(a, b) == race.between for a in one for b in other)


@examples(50)
@given(_scripts())
def test_sectors_are_those_of_a_loop_over_the_requests_of_each_line(script: Any) -> None:
    requests: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    nth: Counter[tuple[int, int, str]] = Counter()
    for each in _accesses(script):
        if each.space == "global":
            thread = each.block, each.thread, each.kind
            requests[each.kind, each.block, nth[thread]].add(each.element)
            nth[thread] += 1
    touched: Counter[str] = Counter()
    for (kind, _, _), indices in requests.items():
        touched[kind] += len({index * 8 // 32 for index in indices})
    traffic = _run(script).traffic
    assert sorted(line.sectors for line in traffic.lines) == sorted(touched.values())
    assert traffic.requested_bytes == 32 * touched.total()
