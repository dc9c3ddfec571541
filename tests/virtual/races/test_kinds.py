"""Each kind of race, and what makes it none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from virtual.races.logs import DOWNLOAD, UPLOAD, WHOLE, Log, placed

from unstall.timeline.columns import RaceKind
from unstall.virtual.log import CopyFlag, LogCode

PINNED = -1
ASYNC = CopyFlag.PINNED | CopyFlag.NON_BLOCKING

Order = Callable[[Log], object]


def ordered_by_events(log: Log) -> None:
    log.wait_stream(2, 1, event=1)


def ordered_by_a_third_stream(log: Log) -> None:
    log.wait_stream(3, 1, event=1)
    log.work(3)
    log.wait_stream(2, 3, event=2)


def ordered_by_stream_sync(log: Log) -> None:
    log.record(LogCode.SYNC_STREAM, 1)


def ordered_by_event_sync(log: Log) -> None:
    log.record(LogCode.EVENT_RECORD, 1, a=1)
    log.record(LogCode.SYNC_EVENT, a=1)


def ordered_by_device_sync(log: Log) -> None:
    log.record(LogCode.SYNC_DEVICE)


def ordered_by_reading_a_value(log: Log) -> None:
    log.record(LogCode.COPY, 1, a=4, b=-1, flags=DOWNLOAD | CopyFlag.VALUE | ASYNC)


def ordered_by_a_blocking_upload(log: Log) -> None:
    log.record(LogCode.COPY, 1, a=4, b=-1, flags=UPLOAD)


def ordered_by_a_pageable_download(log: Log) -> None:
    log.record(LogCode.COPY, 1, a=4, b=-1, flags=DOWNLOAD | CopyFlag.NON_BLOCKING)


ORDERS = [
    ordered_by_events,
    ordered_by_a_third_stream,
    ordered_by_stream_sync,
    ordered_by_event_sync,
    ordered_by_device_sync,
    ordered_by_reading_a_value,
    ordered_by_a_blocking_upload,
    ordered_by_a_pageable_download,
]


def nothing(log: Log) -> None:
    pass


def event_never_recorded(log: Log) -> None:
    log.record(LogCode.EVENT_WAIT, 2, a=9)
    log.record(LogCode.SYNC_EVENT, a=9)


def event_recorded_elsewhere(log: Log) -> None:
    log.wait_stream(2, 3, event=1)


def wait_the_wrong_way_round(log: Log) -> None:
    log.wait_stream(1, 2, event=1)


def another_stream_synchronized(log: Log) -> None:
    log.record(LogCode.SYNC_STREAM, 2)


def another_device_synchronized(log: Log) -> None:
    log.record(LogCode.SYNC_DEVICE, device=1)


def the_default_stream_in_between(log: Log) -> None:
    log.work(0)


def an_upload_that_is_only_staged(log: Log) -> None:
    log.record(LogCode.COPY, 1, a=4, b=-1, flags=UPLOAD | CopyFlag.NON_BLOCKING)


NO_ORDERS = [
    nothing,
    event_never_recorded,
    event_recorded_elsewhere,
    wait_the_wrong_way_round,
    another_stream_synchronized,
    another_device_synchronized,
    the_default_stream_in_between,
    an_upload_that_is_only_staged,
]

PAIRS = [
    ("write", "read", RaceKind.READ_EARLY),
    ("read", "write", RaceKind.OVERWRITTEN_EARLY),
    ("write", "write", RaceKind.WRITTEN_TWICE),
]


def use(log: Log, stream: int, how: str) -> int:
    return log.work(stream, reads=(1,) if how == "read" else (), writes=(1,) if how == "write" else ())


@pytest.mark.parametrize(("earlier", "later", "kind"), PAIRS)
@pytest.mark.parametrize("between", NO_ORDERS)
def test_what_nothing_orders_is_a_race(between: Order, earlier: str, later: str, kind: RaceKind) -> None:
    log = Log()
    first = use(log, 1, earlier)
    between(log)
    second = use(log, 2, later)

    assert log.races() == [(kind, first, second)]


@pytest.mark.parametrize(("earlier", "later", "kind"), PAIRS)
@pytest.mark.parametrize("between", ORDERS)
def test_what_is_ordered_is_none(between: Order, earlier: str, later: str, kind: RaceKind) -> None:
    log = Log()
    use(log, 1, earlier)
    between(log)
    use(log, 2, later)

    assert log.races() == []


def test_the_sum_of_what_normal_has_not_filled_yet() -> None:
    """torch.empty(...), normal_() on one stream, sum() on another, and no wait."""
    log = Log()
    log.record(LogCode.MALLOC, 1, a=1, b=WHOLE)
    normal = log.work(1, writes=(1,))
    log.record(LogCode.MALLOC, 2, a=2, b=4)
    total = log.work(2, reads=(1,), writes=(2,))

    (race,) = log.found()

    assert (race.kind, race.bytes, race.count) == (RaceKind.READ_EARLY, WHOLE, 1)
    assert (race.earlier.record, race.earlier.stream) == (normal, 1)
    assert (race.later.record, race.later.stream) == (total, 2)


def test_an_event_stands_for_its_last_record_before_the_wait() -> None:
    log = Log()
    log.record(LogCode.EVENT_RECORD, 1, a=1)
    write = log.work(1, writes=(1,))
    log.record(LogCode.EVENT_WAIT, 2, a=1)
    early = log.work(2, reads=(1,))
    log.record(LogCode.EVENT_RECORD, 1, a=1)
    log.record(LogCode.EVENT_WAIT, 2, a=1)
    log.work(2, reads=(1,))

    assert log.races() == [(RaceKind.READ_EARLY, write, early)]


def test_reads_do_not_race_with_each_other() -> None:
    log = Log()
    log.work(1, writes=(1,))
    log.record(LogCode.SYNC_DEVICE)
    log.work(1, reads=(1,))
    log.work(2, reads=(1,))

    assert log.races() == []


def test_views_of_one_allocation_race_only_where_they_overlap() -> None:
    log = Log()
    left = log.record(LogCode.LAUNCH, 1, writes=((1, 0, 512),))
    log.record(LogCode.LAUNCH, 2, writes=((1, 512, 512),))
    across = log.record(LogCode.LAUNCH, 2, reads=((1, 500, 100),))

    (race,) = log.found()

    assert (race.earlier.record, race.later.record, race.bytes) == (left, across, 12)


def test_an_operator_that_reads_and_writes_in_place_is_one_race_of_its_bytes() -> None:
    log = Log()
    write = log.work(1, writes=(1,))
    add = log.work(2, reads=(1,), writes=(1,))

    (race,) = log.found()

    assert (race.kind, race.earlier.record, race.later.record) == (RaceKind.READ_EARLY, write, add)
    assert race.bytes == WHOLE


def test_streams_of_one_number_on_two_devices_are_two() -> None:
    log = Log()
    write = log.work(1, writes=(1,), device=0)
    read = log.work(1, reads=(1,), device=1)

    assert log.races() == [(RaceKind.READ_EARLY, write, read)]


def a_copy_across_devices(log: Log, stream: int) -> int:
    """As torch makes it: both wait for each other, by streams that are current on each side; returns the COPY."""
    log.record(LogCode.EVENT_RECORD, stream, a=1, device=1)
    log.record(LogCode.EVENT_WAIT, 0, a=1)
    copy = log.copy(0, 1, 2, 0, b=1)
    log.record(LogCode.EVENT_RECORD, 0, a=2)
    log.record(LogCode.EVENT_WAIT, stream, a=2, device=1)
    return copy


def test_a_copy_across_devices_is_ordered_by_its_events_on_both_sides() -> None:
    log = Log()
    log.work(0, writes=(2,), device=1)
    a_copy_across_devices(log, stream=0)
    log.work(0, reads=(2,), device=1)
    assert log.races() == []


def test_a_copy_across_devices_tells_no_stream_but_those_that_made_it() -> None:
    log = Log()
    log.work(0, device=1)
    copy = a_copy_across_devices(log, stream=3)
    read = log.work(0, reads=(2,), device=1)
    assert log.races() == [(RaceKind.READ_EARLY, copy, read)]


def test_pairs_from_the_same_two_lines_are_one_race() -> None:
    log = Log()
    for _ in range(5):
        log.work(1, writes=(1,), stack=7)
        log.work(2, reads=(1,), stack=8)
        log.record(LogCode.SYNC_DEVICE)

    (race,) = log.found()

    assert race.count == 5


def test_a_download_that_is_read_before_it_has_ended() -> None:
    log = Log()
    copy = log.copy(1, 1, PINNED, DOWNLOAD | ASYNC)
    read = log.host(reads=(PINNED,))

    (race,) = log.found()

    assert (race.kind, race.earlier.record, race.later.record) == (RaceKind.READ_EARLY, copy, read)
    assert race.later.stream is None


@pytest.mark.parametrize("between", [ordered_by_stream_sync, ordered_by_event_sync, ordered_by_device_sync])
def test_a_download_that_is_read_once_it_has_ended(between: Order) -> None:
    log = Log()
    log.copy(1, 1, PINNED, DOWNLOAD | ASYNC)
    between(log)
    log.host(reads=(PINNED,))

    assert log.races() == []


def test_a_stream_that_waits_does_not_make_the_host_wait() -> None:
    log = Log()
    copy = log.copy(1, 1, PINNED, DOWNLOAD | ASYNC)
    log.wait_stream(2, 1, event=1)
    read = log.host(reads=(PINNED,))

    assert log.races() == [(RaceKind.READ_EARLY, copy, read)]


def test_a_download_that_blocks_has_ended() -> None:
    log = Log()
    log.copy(1, 1, PINNED, DOWNLOAD | CopyFlag.PINNED)
    log.host(reads=(PINNED,))

    assert log.races() == []


def test_the_source_of_an_upload_is_overwritten_before_it_was_copied() -> None:
    log = Log()
    copy = log.copy(1, PINNED, 1, UPLOAD | ASYNC)
    write = log.host(writes=(PINNED,))

    assert log.races() == [(RaceKind.OVERWRITTEN_EARLY, copy, write)]


def test_what_the_host_wrote_is_there_for_work_that_it_launches_later() -> None:
    log = Log()
    log.host(writes=(PINNED,))
    log.copy(1, PINNED, 1, UPLOAD | ASYNC)
    log.record(LogCode.SYNC_STREAM, 1)
    log.host(writes=(PINNED,))
    log.copy(2, PINNED, 2, UPLOAD | ASYNC)

    assert log.races() == []


def test_an_operator_that_only_leads_to_a_copy_does_not_touch_the_memory_itself() -> None:
    """aten::copy_ has the pinned tensor as an argument, but it is the stream that writes it."""
    log = Log()
    for _ in range(2):
        log.record(LogCode.OP_BEGIN, writes=((PINNED, 0, WHOLE),))
        log.copy(1, 1, PINNED, DOWNLOAD | ASYNC)
        log.record(LogCode.OP_END)

    assert log.races() == []


def test_a_block_freed_on_its_own_stream_while_another_still_reads_it() -> None:
    log = Log()
    log.record(LogCode.MALLOC, 1, a=1)
    log.work(1, writes=(1,))
    log.wait_stream(2, 1, event=1)
    read = log.work(2, reads=(1,))
    log.record(LogCode.FREE, a=1)
    log.record(LogCode.MALLOC, 1, a=2)
    write = log.work(1, writes=(2,))

    assert log.races() == []
    assert log.races(placed(a1=0, a2=0)) == [(RaceKind.REUSED, read, write)]
    assert log.races(placed(a1=0, a2=512)) == [(RaceKind.REUSED, read, write)]
    assert log.races(placed(a1=0, a2=WHOLE)) == []


def freed_and_reused(between_use_and_free: Order, between_free_and_reuse: Order) -> Log:
    log = Log()
    log.record(LogCode.MALLOC, 2, a=1)
    log.work(2, writes=(1,))
    log.wait_stream(1, 2, event=7)
    log.work(1, reads=(1,))
    between_use_and_free(log)
    log.record(LogCode.FREE, a=1)
    between_free_and_reuse(log)
    log.record(LogCode.MALLOC, 2, a=2)
    log.work(2, writes=(2,))
    return log


@pytest.mark.parametrize("between", ORDERS)
def test_a_block_is_reused_safely_once_its_stream_waits_for_the_other(between: Order) -> None:
    assert freed_and_reused(nothing, nothing).races(placed(a1=0, a2=0)) != []
    assert freed_and_reused(between, nothing).races(placed(a1=0, a2=0)) == []
    assert freed_and_reused(nothing, between).races(placed(a1=0, a2=0)) == []


def record_stream(log: Log) -> None:
    log.record(LogCode.USE_STREAM, 1, a=1)


def record_stream_of_another(log: Log) -> None:
    log.record(LogCode.USE_STREAM, 3, a=1)


def empty_cache(log: Log) -> None:
    log.record(LogCode.EMPTY_CACHE)


def test_record_stream_holds_a_block_back() -> None:
    assert freed_and_reused(record_stream, nothing).races(placed(a1=0, a2=0)) == []
    assert len(freed_and_reused(record_stream_of_another, nothing).races(placed(a1=0, a2=0))) == 1


def test_memory_that_went_back_to_the_device_is_done_with() -> None:
    assert freed_and_reused(nothing, empty_cache).races(placed(a1=0, a2=0)) == []


def test_memory_is_used_on_another_stream_while_its_own_still_works_on_what_was_there_before() -> None:
    """torch.empty(...) on the current stream, filled on a stream that does not wait for it."""

    def log_of(between: Order) -> Log:
        log = Log()
        log.record(LogCode.MALLOC, 1, a=1)
        log.work(1, writes=(1,))
        log.record(LogCode.FREE, a=1)
        log.record(LogCode.MALLOC, 1, a=2)
        between(log)
        log.copy(2, PINNED, 2, UPLOAD | ASYNC)
        return log

    assert log_of(nothing).races(placed(a1=0, a2=0)) == [(RaceKind.TAKEN_EARLY, 1, 4)]
    assert log_of(ordered_by_events).races(placed(a1=0, a2=0)) == []
    assert log_of(nothing).races(placed(a1=0, a2=WHOLE)) == []


def test_pageable_memory_is_of_no_allocation_and_only_the_hosts() -> None:
    log = Log()
    pageable = ((0, 0, WHOLE),)
    for stream in (1, 2):
        own, upload = ((stream, 0, WHOLE),), UPLOAD | CopyFlag.NON_BLOCKING
        log.record(LogCode.COPY, stream, a=WHOLE, b=-1, flags=upload, reads=pageable, writes=own)
        log.record(LogCode.COPY, stream, a=WHOLE, b=-1, flags=DOWNLOAD, reads=own, writes=pageable)

    assert log.races() == []


def test_counts_that_do_not_fit_are_refused() -> None:
    log = Log()
    log.work(1, writes=(1,))

    with pytest.raises(ValueError, match="uses of memory"):
        type(log)(log.rows, log.uses * 2).races()
