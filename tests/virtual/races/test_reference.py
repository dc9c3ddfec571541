"""Clocks find what the closed graph of happens-before finds, in any log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from virtual.races.logs import Log, Range
from virtual.races.reference import ReferenceRaces

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import CopyFlag, LogCode

Call = Callable[[Log], None]

_STREAM = st.integers(0, 2)
_EVENT = st.integers(1, 2)
_DEVICE = st.sampled_from((0, 0, 0, 1))
_HOW = st.sampled_from((CopyFlag(0), CopyFlag.PINNED, CopyFlag.NON_BLOCKING, CopyFlag.PINNED | CopyFlag.NON_BLOCKING))
_DIRECTION = st.sampled_from((CopyFlag.HOST_TO_DEVICE, CopyFlag.DEVICE_TO_HOST, CopyFlag.DEVICE_TO_DEVICE))


def ranges(*allocations: int) -> st.SearchStrategy[tuple[Range, ...]]:
    one = st.tuples(st.sampled_from(allocations), st.integers(0, 3), st.integers(0, 4))
    return st.lists(one, min_size=1, max_size=2).map(tuple)


@st.composite
def work(draw: st.DrawFn) -> Call:
    stream, device, some = draw(_STREAM), draw(_DEVICE), draw(ranges(1, 1, 2))
    reads, writes = draw(st.sampled_from(((some, ()), ((), some), (some, some), (some[:1], some[1:]))))
    return lambda log: _record(log, LogCode.LAUNCH, stream, device=device, reads=reads, writes=writes)


@st.composite
def wait_stream(draw: st.DrawFn) -> Call:
    waiting, other, event = draw(_STREAM), draw(_STREAM), draw(_EVENT)
    return lambda log: log.wait_stream(waiting, other, event)


@st.composite
def event(draw: st.DrawFn) -> Call:
    code, stream, number = (
        draw(st.sampled_from((LogCode.EVENT_RECORD, LogCode.EVENT_WAIT))),
        draw(_STREAM),
        draw(_EVENT),
    )
    return lambda log: _record(log, code, stream, a=number)


@st.composite
def host_waits(draw: st.DrawFn) -> Call:
    code = draw(st.sampled_from((LogCode.SYNC_EVENT, LogCode.SYNC_STREAM, LogCode.SYNC_DEVICE)))
    stream, number, device = draw(_STREAM), draw(_EVENT), draw(_DEVICE)
    return lambda log: _record(log, code, stream, a=number, device=device)


@st.composite
def copy(draw: st.DrawFn) -> Call:
    stream, flags = draw(_STREAM), draw(_DIRECTION) | draw(_HOW)
    reads, writes = draw(ranges(1, -1)), draw(ranges(1, -1))
    return lambda log: _record(log, LogCode.COPY, stream, b=-1, flags=flags, reads=reads, writes=writes)


@st.composite
def host_uses(draw: st.DrawFn) -> Call:
    some, write = draw(ranges(-1)), draw(st.booleans())

    def call(log: Log) -> None:
        _record(log, LogCode.OP_BEGIN, reads=() if write else some, writes=some if write else ())
        log.record(LogCode.OP_END)

    return call


@st.composite
def launch(draw: st.DrawFn) -> Call:
    stream = draw(_STREAM)
    return lambda log: _record(log, LogCode.GRAPH_LAUNCH, stream, a=1)


def _record(log: Log, code: LogCode, stream: int = 0, **more: Any) -> None:
    log.record(code, stream, **more)


_ON_DEVICE = (work(), work(), work(), wait_stream(), event())
CALLS = st.lists(st.one_of(*_ON_DEVICE, wait_stream(), host_waits(), copy(), copy(), host_uses()), max_size=20)


def worst(races: list[tuple[RaceKind, int, int]]) -> set[tuple[RaceKind, int, int]]:
    """Of each pair of records the worst kind: a graph's nodes may race in one launch otherwise than in the next."""
    found: dict[tuple[int, int], RaceKind] = {}
    for kind, earlier, later in races:
        found[earlier, later] = min(kind, found.get((earlier, later), kind))
    return {(kind, *pair) for pair, kind in found.items()}


@examples(300)
@given(CALLS)
def test_the_same_races_as_the_graph_of_all_order(calls: list[Call]) -> None:
    log = Log()
    for call in calls:
        call(log)

    assert set(log.races()) == ReferenceRaces(log).races()


@examples(200)
@given(st.lists(st.one_of(*_ON_DEVICE), max_size=8), st.lists(st.one_of(*_ON_DEVICE, launch(), launch()), max_size=12))
def test_the_same_races_where_a_graph_is_captured_and_launched(captured: list[Call], calls: list[Call]) -> None:
    log = Log()
    log.record(LogCode.CAPTURE_BEGIN, 1, a=1)
    for call in captured:
        call(log)
    log.record(LogCode.CAPTURE_END, 1, a=1)
    for call in calls:
        call(log)

    assert worst(log.races()) == ReferenceRaces(log).races()
