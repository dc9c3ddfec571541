"""Which calls use the data of an upload, by the memory that work uses."""

from __future__ import annotations

import numpy as np
from virtual.races.logs import WHOLE, Log, whole

from unstall.timeline.columns import Uploads
from unstall.virtual.log import CopyFlag, LogCode
from unstall.virtual.timeline.uploads import Calls, renumbered, uploads_table

UP = CopyFlag.HOST_TO_DEVICE | CopyFlag.NON_BLOCKING


def uploads(log: Log, contents: dict[int, int] | None = None) -> Uploads:
    """The table, with the number of a record as the row of its call."""
    records = log.records
    for record, content in (contents or {}).items():
        records["content"][record] = content
    rows = np.arange(len(records), dtype=np.int32)
    return uploads_table(records, log.used, rows.astype(np.int64), Calls(rows, rows))


def test_data_that_nothing_uses_have_no_use() -> None:
    log = Log()
    copies = [log.copy(0, 0, allocation, UP) for allocation in (1, 2, 3)]
    log.work(0, reads=(8,), writes=(9,))
    found = uploads(log, {copies[0]: 5, copies[2]: 5})

    assert found.call.tolist() == copies
    assert found.content.tolist() == [5, 0, 5]
    assert found.first_use.tolist() == found.last_use.tolist() == found.previous.tolist() == [-1, -1, -1]
    assert found.alone.all()


def test_uses_end_where_other_data_are_copied_to_the_same_memory() -> None:
    log = Log()
    fill = log.work(0, writes=(1,))
    first = log.copy(0, 0, 1, UP)
    uses = [log.work(0, reads=(1,)) for _ in range(3)]
    second = log.copy(0, 0, 1, UP)
    other = log.work(0, reads=(1,), writes=(2,))
    found = uploads(log)

    assert found.call.tolist() == [first, second]
    assert found.first_use.tolist() == [uses[0], other]
    assert found.last_use.tolist() == [uses[2], other]
    assert found.used_before.tolist() == [fill, uses[2]]
    assert found.previous.tolist() == [-1, 0]


def test_work_of_another_stream_or_a_copy_to_a_part_ties_an_upload_down() -> None:
    log = Log()
    log.copy(0, 0, 1, UP)
    log.work(3, reads=(1,))
    log.copy(0, 0, 2, UP)
    log.record(LogCode.COPY, 0, a=8, b=-1, flags=UP, writes=((2, 4, 8),))
    log.copy(0, 0, 3, UP)
    log.work(0, reads=(3,))

    assert uploads(log).alone.tolist() == [False, False, False, True]


def test_only_bytes_that_overlap_count() -> None:
    log = Log()
    log.record(LogCode.COPY, 0, a=8, b=-1, flags=UP, writes=((1, 0, 8),))
    log.record(LogCode.LAUNCH, 0, reads=((1, 8, 8),))
    log.record(LogCode.COPY, 0, a=8, b=-1, flags=UP, writes=((1, 16, 8),))
    used = log.record(LogCode.LAUNCH, 0, reads=((1, 4, WHOLE),))

    assert uploads(log).first_use.tolist() == [used, used]


def test_a_graph_uses_the_data_of_an_upload_at_each_launch() -> None:
    log = Log()
    log.record(LogCode.CAPTURE_BEGIN, 5, a=1)
    log.work(5, reads=(1,), writes=(2,))
    log.work(5, reads=(2,))
    log.record(LogCode.CAPTURE_END, 5, a=1)
    log.copy(5, 0, 1, UP)
    launches = [log.record(LogCode.GRAPH_LAUNCH, 5, a=1) for _ in range(2)]
    log.copy(5, 0, 1, UP)
    launches.append(log.record(LogCode.GRAPH_LAUNCH, 5, a=1))
    found = uploads(log)

    assert found.first_use.tolist() == [launches[0], launches[2]]
    assert found.last_use.tolist() == [launches[1], launches[2]]
    assert found.alone.all()


def test_downloads_are_uses_and_no_uploads() -> None:
    log = Log()
    log.copy(0, 0, 1, UP)
    down = log.record(LogCode.COPY, 0, a=WHOLE, b=-1, flags=CopyFlag.DEVICE_TO_HOST, reads=(whole(1),))
    found = uploads(log)

    assert len(found) == 1
    assert found.first_use.tolist() == [down]


def test_calls_that_are_gone_take_their_uploads_with_them() -> None:
    log = Log()
    log.copy(0, 0, 1, UP)
    log.work(0, reads=(1,))
    log.copy(0, 0, 1, UP)
    log.work(0, reads=(1,))
    found = renumbered(uploads(log), np.array([-1, 0, 1, -1, -1], np.int32))

    assert found.call.tolist() == [1]
    assert found.previous.tolist() == [-1]
    assert found.used_before.tolist() == [0]
    assert found.first_use.tolist() == [-1]
