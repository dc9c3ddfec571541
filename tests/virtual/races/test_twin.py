"""Clocks find what the closed graph of happens-before finds, in any log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from virtual.races.logs import Log, Range
from virtual.races.twin import Twin

from unstall.timeline import RaceKind
from unstall.virtual.log import Code, CopyFlag

_STREAM = st.integers(0, 3)
_EVENT = st.integers(1, 3)
_DEVICE = st.sampled_from((0, 0, 0, 1))
_COPY = st.sampled_from(
    [
        direction | how
        for direction in (CopyFlag.HOST_TO_DEVICE, CopyFlag.DEVICE_TO_HOST, CopyFlag.DEVICE_TO_DEVICE)
        for how in (0, CopyFlag.PINNED, CopyFlag.NON_BLOCKING, CopyFlag.PINNED | CopyFlag.NON_BLOCKING)
    ]
)


def ranges(allocations: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[Range, ...]]:
    one = st.tuples(allocations, st.integers(0, 6), st.integers(0, 5))
    return st.lists(one, max_size=2).map(tuple)


DEVICE_RANGES = ranges(st.sampled_from((1, 2, 3)))
ANY_RANGES = ranges(st.sampled_from((1, 2, -1)))
HOST_RANGES = ranges(st.sampled_from((-1, -2)))
_CALL = st.one_of(
    st.tuples(st.just(Code.LAUNCH), _STREAM, _EVENT, _DEVICE, DEVICE_RANGES, DEVICE_RANGES, st.just(0)),
    st.tuples(st.just(Code.LAUNCH), _STREAM, _EVENT, st.just(0), DEVICE_RANGES, DEVICE_RANGES, st.just(0)),
    st.tuples(st.just(Code.COPY), _STREAM, _EVENT, _DEVICE, ANY_RANGES, ANY_RANGES, _COPY),
    st.tuples(st.just(Code.OP_BEGIN), st.just(0), _EVENT, st.just(0), HOST_RANGES, HOST_RANGES, st.just(0)),
    st.tuples(
        st.sampled_from((Code.EVENT_RECORD, Code.EVENT_WAIT, Code.SYNC_EVENT, Code.SYNC_STREAM, Code.SYNC_DEVICE)),
        *(_STREAM, _EVENT, _DEVICE, st.just(()), st.just(()), st.just(0)),
    ),
)


def log_of(calls: list[tuple[Code, int, int, int, tuple[Range, ...], tuple[Range, ...], int]], log: Log) -> Log:
    for code, stream, event, device, reads, writes, flags in calls:
        log.record(code, stream, a=event, b=-1, device=device, reads=reads, writes=writes, flags=flags)
        if code == Code.OP_BEGIN:
            log.record(Code.OP_END)
    return log


@settings(max_examples=400, deadline=None)
@given(st.lists(_CALL, max_size=25))
def test_the_same_races_as_the_graph_of_all_order(calls: list[tuple]) -> None:
    log = log_of(calls, Log())

    assert set(log.races()) == Twin(log).races()


@settings(max_examples=400, deadline=None)
@given(
    st.lists(_CALL.filter(lambda call: call[0] not in (Code.OP_BEGIN, Code.COPY)), max_size=12),
    st.lists(st.one_of(_CALL, st.just(None)), max_size=16),
)
def test_the_same_races_where_a_graph_is_captured_and_launched(
    captured: list[tuple], calls: list[tuple | None]
) -> None:
    log = Log()
    log.record(Code.CAPTURE_BEGIN, 1, a=1)
    log_of([call for call in captured if not call[0].name.startswith("SYNC")], log)
    log.record(Code.CAPTURE_END, 1, a=1)
    for number, call in enumerate(calls):
        if call is None:
            log.record(Code.GRAPH_LAUNCH, number % 4, a=1)
        else:
            log_of([call], log)

    worst: dict[tuple[int, int], RaceKind] = {}
    for kind, *pair in log.races():
        key = (pair[0], pair[1])
        worst[key] = min(kind, worst.get(key, kind))
    assert {(kind, *pair) for pair, kind in worst.items()} == Twin(log).races()
