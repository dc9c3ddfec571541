"""A log that comes in parts has the races of the whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from virtual.races.logs import DOWNLOAD, Log, placed
from virtual.races.test_reference import CALLS, Call

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import CopyFlag, LogCode
from unstall.virtual.races import RaceLog


def in_parts(log: Log, size: int) -> RaceLog:
    kept = RaceLog()
    records, uses = log.records, log.used
    for first in range(0, len(records), size):
        part = records[first : first + size]
        before = int(records["uses"][:first].sum())
        kept.add(part, uses[before : before + int(part["uses"].sum())])
    return kept


@examples(100)
@given(CALLS, st.integers(1, 5))
def test_parts_have_the_races_of_the_whole(calls: list[Call], size: int) -> None:
    log = Log()
    for call in calls:
        log.record(LogCode.MARK_BEGIN)
        call(log)

    assert in_parts(log, size).races() == log.found()


def test_an_operator_left_open_by_one_part_leads_to_its_copy_in_the_next() -> None:
    log = Log()
    for _ in range(2):
        log.record(LogCode.OP_BEGIN, writes=((-1, 0, 8),))
        log.copy(1, 1, -1, DOWNLOAD | CopyFlag.PINNED | CopyFlag.NON_BLOCKING)
        log.record(LogCode.OP_END)

    assert in_parts(log, 1).races() == ()


def test_a_query_that_says_done_orders_what_the_host_does_next() -> None:
    first, second = Log(), Log()
    first.copy(1, 1, -1, DOWNLOAD | CopyFlag.PINNED | CopyFlag.NON_BLOCKING)
    first.record(LogCode.EVENT_RECORD, 1, a=5)
    second.host(reads=(-1,))

    def kept(event: int | None, stream: int | None) -> RaceLog:
        log = RaceLog()
        log.add(first.records, first.used)
        if event is not None:
            log.event_is_done(event)
        if stream is not None:
            log.stream_is_done(0, stream)
        log.add(second.records, second.used)
        return log

    (race,) = kept(None, None).races()
    assert (race.kind, race.earlier.record, race.later.record) == (RaceKind.READ_EARLY, 0, 2)
    assert kept(5, None).races() == ()
    assert kept(None, 1).races() == ()
    assert len(kept(6, 2).races()) == 1


def test_placements_are_told_one_by_one() -> None:
    log = Log()
    log.record(LogCode.MALLOC, 1, a=1)
    log.work(2, reads=(1,))
    log.record(LogCode.FREE, a=1)
    log.record(LogCode.MALLOC, 1, a=2)
    log.work(1, writes=(2,))
    kept = in_parts(log, 2)
    kept.placed([(2, 0, 1024), (1, 0, 1024)])

    assert kept.races() == log.found(placed(a1=0, a2=0))
    assert len(kept.races()) == 1


def test_races_within_a_part_are_those_of_its_own_accesses() -> None:
    log = Log()
    for _ in range(4):
        log.work(1, writes=(5,), stack=10)
        log.work(2, reads=(5,), stack=20)
        log.record(LogCode.SYNC_DEVICE)
    kept = in_parts(log, 100)
    half = kept.kept // 2

    assert [race.count for race in kept.races()] == [4]
    first, second = kept.races(range(half)), kept.races(range(half, kept.kept))
    assert [(race.count, race.later.record) for race in first] == [(2, 1)]
    assert [(race.count, race.later.record) for race in second] == [(2, 7)]
    assert kept.races(range(2, 4)) == ()
