"""Races of device memory: which use of which bytes is compared with which."""

from __future__ import annotations

from blaming.races.works import WHOLE, Streams

from unstall.blaming.races.device_memory import Use
from unstall.blaming.races.spans import Span


def test_a_read_of_what_another_stream_writes() -> None:
    streams = Streams()
    write = streams.uses(1, write=True)
    read = streams.uses(2, write=False)

    assert streams.found() == [("read-early", write, read)]


def test_a_read_that_waits_for_the_write() -> None:
    streams = Streams()
    streams.uses(1, write=True)
    streams.wait(1, 2)
    streams.uses(2, write=False)

    assert streams.found() == []


def test_a_write_is_compared_with_the_reads_of_all_streams() -> None:
    streams = Streams()
    first, second = streams.uses(1, write=False), streams.uses(2, write=False)
    write = streams.uses(3, write=True)

    assert streams.found() == [("overwritten-early", first, write), ("overwritten-early", second, write)]


def test_two_reads_are_no_race() -> None:
    streams = Streams()
    streams.uses(1, write=False)
    streams.uses(2, write=False)

    assert streams.found() == []


def test_only_the_last_write_of_a_stream_to_the_same_bytes_is_told() -> None:
    streams = Streams()
    streams.uses(1, write=True)
    last = streams.uses(1, write=True)
    write = streams.uses(2, write=True)

    assert streams.found() == [("written-twice", last, write)]


def test_parts_of_a_tensor_that_do_not_overlap_are_no_race() -> None:
    streams = Streams()
    streams.uses(1, write=True, at=0, size=512)
    streams.uses(2, write=True, at=512, size=512)

    assert streams.found() == []


def test_the_rest_of_a_write_that_a_later_one_replaces_in_part() -> None:
    streams = Streams()
    whole = streams.uses(1, write=True)
    half = streams.uses(1, write=True, size=512)
    first = streams.uses(2, write=False, size=512)
    second = streams.uses(2, write=False, at=512, size=512)

    assert streams.found() == [("read-early", half, first), ("read-early", whole, second)]


def freed_and_given_out(home: int = 1, next_home: int = 1, *, record: int | None = None, wait: bool = False) -> Streams:
    """Stream 2 reads a block of stream `home`, which is freed and goes to a tensor of `next_home`."""
    streams = Streams()
    streams.device.allocated(0, home)
    streams.uses(home, write=True, line=100)
    streams.wait(home, 2)
    streams.uses(2, write=False, line=200)
    if record is not None:
        streams.device.record_stream(0, record)
    if wait:
        streams.wait(2, home)
    streams.device.freed(0, (("train.py", 300, "main"),))
    streams.device.allocated(0, next_home)
    streams.uses(next_home, write=True, line=400)
    return streams


def test_a_block_is_given_out_while_another_stream_still_reads_it() -> None:
    streams = freed_and_given_out()

    assert streams.found() == [("reused", 200, 400)]
    freed = streams.noted.races()[0].freed_at
    assert freed
    assert freed.line == 300


def test_record_stream_holds_a_block_back_for_that_stream_alone() -> None:
    assert freed_and_given_out(record=2).found() == []
    assert freed_and_given_out(record=3).found() == [("reused", 200, 400)]


def test_a_block_whose_stream_waits_before_the_free() -> None:
    assert freed_and_given_out(wait=True).found() == []


def test_a_block_that_goes_to_another_stream_was_given_back_to_the_driver_which_waits() -> None:
    assert freed_and_given_out(next_home=3).found() == []


def test_a_block_that_is_freed_and_not_given_out_again_is_no_race() -> None:
    streams = Streams()
    streams.device.allocated(0, 1)
    streams.uses(2, write=False)
    streams.device.freed(0, ())
    streams.device.allocated(WHOLE, 1)
    streams.uses(1, write=True, block=WHOLE)

    assert streams.found() == []


def test_a_part_of_a_freed_block_is_given_out() -> None:
    streams = Streams()
    streams.device.allocated(0, 1)
    read = streams.uses(2, write=False)
    streams.device.freed(0, ())
    streams.device.allocated(512, 1)
    work = streams.work(1)
    streams.device.used(512, 768, Use(Span(512, 768, 256), True, work))

    assert streams.found() == [("reused", read, work.stack[0][1])]


def test_a_new_tensor_is_used_on_a_stream_that_does_not_wait_for_the_one_that_allocated_it() -> None:
    streams = Streams()
    streams.device.allocated(0, 1)
    old = streams.uses(1, write=True)
    streams.device.freed(0, ())
    streams.device.allocated(0, 1)
    new = streams.uses(2, write=True)

    assert streams.found() == [("taken-early", old, new)]


def test_twelve_races_of_one_pair_of_lines_are_one() -> None:
    streams = Streams()
    for _ in range(12):
        streams.uses(1, write=True, line=7)
        streams.uses(2, write=False, line=9)
        streams.wait(2, 1)

    (race,) = streams.noted.races()
    assert (race.count, race.bytes) == (12, WHOLE)
    assert race.fix == (
        "let stream 0x2 wait for stream 0x1 in between: stream.wait_stream(other), or an event's record() and wait()"
    )
