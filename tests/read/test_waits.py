"""What each wait waited for: as the file says, or as the order of calls tells."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from traces import Event, TraceBuilder

from unstall.timeline.columns import Timeline, WaitKind

STREAMS = (7, 20)


def stream_ids(timeline: Timeline, rows: Any) -> list[int]:
    return [int(timeline.streams.stream[row]) if row >= 0 else -1 for row in rows]


def record_times(timeline: Timeline) -> list[int]:
    """For each wait when the record it waits for was called; -1 where that is not known."""
    return [int(timeline.host.start[row]) if row >= 0 else -1 for row in timeline.waits.record]


def numbered(events: list[Event], first: int = 2190) -> list[Event]:
    """As CUPTI writes it from CUDA 12.9 on: no stream, no correlation id, and an id that counts records."""

    def changed(args: Event) -> Event:
        if "wait_on_cuda_event_id" not in args:
            return args
        unknown = {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}
        return args | unknown | {"wait_on_cuda_event_id": args["wait_on_cuda_event_id"] + first}

    return [event | {"args": changed(event["args"])} for event in events]


def two_streams(*, sync_records: bool = True) -> TraceBuilder:
    """Stream 20 waits for what stream 7 was given; then the host waits for an event, a stream and the device."""
    trace = TraceBuilder(sync_records=sync_records)
    trace.launch("gemm", 100, stream=7)
    event = trace.record(stream=7)
    trace.stream_wait(event, stream=20)
    trace.launch("relu", 10, stream=20)
    trace.event_sync(trace.record(stream=20))
    trace.sync(stream=20)
    trace.sync("device")
    return trace


KINDS = [WaitKind.STREAM_EVENT, WaitKind.EVENT, WaitKind.STREAM, WaitKind.DEVICE]


def test_what_the_file_says_is_taken() -> None:
    timeline = two_streams().timeline()
    waits = timeline.waits
    assert waits.kind.tolist() == KINDS
    assert stream_ids(timeline, waits.stream)[0] == 20
    assert stream_ids(timeline, waits.stream)[2] == 20
    assert stream_ids(timeline, waits.on_stream)[:2] == [7, 20]
    assert record_times(timeline)[:2] == [5_000, 12_000]
    assert not waits.inferred.any()


def test_what_it_does_not_say_follows_from_the_calls_around_and_is_marked() -> None:
    timeline = two_streams(sync_records=False).timeline()
    waits = timeline.waits
    assert waits.kind.tolist() == KINDS
    assert stream_ids(timeline, waits.stream)[0] == 20
    assert stream_ids(timeline, waits.stream)[2] == 20
    assert stream_ids(timeline, waits.on_stream)[:2] == [7, 20]
    assert record_times(timeline)[:2] == [5_000, 12_000]
    assert waits.inferred.tolist() == [True, True, True, False]


def test_event_ids_that_count_records_are_told_from_their_order() -> None:
    trace = two_streams()
    timeline = trace.timeline(numbered(trace.events))
    assert record_times(timeline)[:2] == [5_000, 12_000]
    assert stream_ids(timeline, timeline.waits.on_stream)[:2] == [7, 20]
    assert timeline.waits.inferred.tolist() == [True, True, False, False]


@st.composite
def event_programs(draw: st.DrawFn) -> TraceBuilder:
    """Streams that wait for any earlier event; the last wait is for the latest one."""
    trace = TraceBuilder()
    records = []
    for _ in range(draw(st.integers(1, 8))):
        stream = draw(st.sampled_from(STREAMS))
        trace.launch("gemm", draw(st.integers(1, 200)), stream=stream)
        records.append(trace.record(stream=stream))
        other = STREAMS[stream == STREAMS[0]]
        if draw(st.booleans()):
            trace.stream_wait(draw(st.sampled_from(records)), stream=other)
            trace.launch("relu", 10, stream=other)
    trace.stream_wait(records[-1], stream=STREAMS[0])
    trace.launch("relu", 10, stream=STREAMS[0])
    return trace


@examples(50)
@given(event_programs(), st.integers(0, 10_000))
def test_every_one_of_them_is_told_once_one_wait_is_for_the_latest_record(trace: TraceBuilder, first: int) -> None:
    said, told = trace.timeline(), trace.timeline(numbered(trace.events, first))
    assert record_times(told) == record_times(said)
    assert stream_ids(told, told.waits.on_stream) == stream_ids(said, said.waits.on_stream)
    assert told.waits.inferred.all()


def test_a_wait_for_an_event_from_before_the_recording_is_not_told_and_noted() -> None:
    trace = TraceBuilder()
    trace.launch("gemm", 100)
    lost = trace.record()
    trace.launch("gemm", 100)
    kept = trace.record()
    trace.stream_wait(lost, stream=20)
    trace.launch("relu", 10, stream=20)
    trace.stream_wait(kept, stream=20)
    trace.launch("relu", 10, stream=20)
    events = [event for event in numbered(trace.events) if event["args"].get("correlation") != lost.correlation]
    timeline = trace.timeline(events)
    assert record_times(timeline) == [-1, 11_000]
    assert timeline.meta.notes == ("1 of 2 waits for an event do not say which event",)


def test_the_launches_of_another_thread_tell_nothing_of_a_wait() -> None:
    trace = TraceBuilder(sync_records=False)
    with trace.on_thread(450):
        trace.launch("gemm", 10)
    trace.sync()
    trace.stream_wait(trace.record(stream=7), stream=20)
    with trace.on_thread(450):
        trace.launch("gemm", 10)
    timeline = trace.timeline()
    assert timeline.waits.stream.tolist() == [-1, -1]


def test_a_guess_that_the_devices_own_order_belies_is_dropped_and_noted() -> None:
    """The waiting stream went on long before the work ahead of the only event had ended."""
    trace = TraceBuilder(sync_records=False)
    trace.launch("gemm", 10_000, stream=7)
    trace.record(stream=7)
    other = trace.record(stream=20)
    trace.launch("gemm", 10_000, stream=7)
    trace.record(stream=7)
    trace.stream_wait(other, stream=20)
    trace.launch("relu", 10, stream=20)
    timeline = trace.timeline()
    assert timeline.waits.record.tolist() == [-1]
    assert timeline.meta.notes == ("1 of 1 waits for an event do not say which event",)


def test_a_program_without_waits_has_none() -> None:
    trace = TraceBuilder()
    trace.launch("gemm", 10)
    assert len(trace.timeline().waits) == 0
