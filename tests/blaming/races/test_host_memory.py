"""Races of pinned host memory with copies that may still run."""

from __future__ import annotations

from dataclasses import dataclass

from blaming.races.works import Streams

from unstall.blaming.races.spans import Span

BUFFER = Span(0, 1024, 1024)
FIRST_HALF, SECOND_HALF = Span(0, 512, 512), Span(512, 1024, 512)


@dataclass
class Storage:
    """A weak reference to a storage."""

    gone: bool = False

    def expired(self) -> bool:
        return self.gone


def test_a_download_is_read_before_the_host_has_waited() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1, 10), Storage(), write=True)
    streams.host.used(BUFFER, streams.work(None, 20), write=False)

    assert streams.found() == [("read-early", 10, 20)]
    (race,) = streams.noted.races()
    assert race.later.stream is None
    assert race.fix.startswith("wait for the copy before reading: event.record() after it and event.synchronize()")


def test_the_source_of_an_upload_is_overwritten() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1, 10), Storage(), write=False)
    streams.host.used(BUFFER, streams.work(None, 20), write=True)

    assert streams.found() == [("overwritten-early", 10, 20)]


def test_the_source_of_an_upload_may_be_read() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1), Storage(), write=False)
    streams.host.used(BUFFER, streams.work(None), write=False)

    assert streams.found() == []


def test_what_the_host_has_waited_for_is_there() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1), Storage(), write=True)
    streams.wait(1, None)
    streams.host.used(BUFFER, streams.work(None), write=False)

    assert streams.found() == []
    assert not streams.host.is_used


def test_another_half_of_the_buffer_is_free() -> None:
    streams = Streams()
    streams.host.copies(FIRST_HALF, streams.work(1), Storage(), write=False)
    streams.host.used(SECOND_HALF, streams.work(None), write=True)

    assert streams.found() == []


def test_memory_of_a_tensor_that_is_gone_is_another_tensors() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1), Storage(gone=True), write=False)
    streams.host.used(BUFFER, streams.work(None), write=True)

    assert streams.found() == []


def test_a_copy_on_another_stream_into_a_buffer_that_is_still_copied() -> None:
    streams = Streams()
    streams.host.copies(BUFFER, streams.work(1, 10), Storage(), write=False)
    streams.host.used(BUFFER, streams.work(2, 20), write=True)

    assert streams.found() == [("overwritten-early", 10, 20)]
