"""The virtual GPU that tests record from behaves as a real one does."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from hypothesis import given
from profiles import examples
from programs import Program, programs
from traces import TraceBuilder

A_FEW = examples(30)
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@A_FEW
@given(programs())
def test_a_stream_does_one_thing_at_a_time_in_the_order_of_calls(program: Program) -> None:
    streams = defaultdict(list)
    for event in program.events:
        if event["cat"] in DEVICE:
            streams[event["pid"], event["tid"]].append(event)
    for ops in streams.values():
        for before, after in pairwise(ops):
            assert before["ts"] + before["dur"] <= after["ts"]


@A_FEW
@given(programs())
def test_an_op_starts_after_its_call(program: Program) -> None:
    calls = {event["args"]["correlation"]: event for event in program.events if event["cat"] == "cuda_runtime"}
    for event in program.events:
        if event["cat"] in DEVICE:
            assert calls[event["args"]["correlation"]]["ts"] + 5_000 < event["ts"]


@A_FEW
@given(programs())
def test_events_of_a_thread_nest_but_for_annotations(program: Program) -> None:
    threads = defaultdict(list)
    for event in program.events:
        if event["cat"] in ("cpu_op", "cuda_runtime", "python_function"):
            threads[event["tid"]].append((event["ts"], -event["ts"] - event["dur"]))
    for spans in threads.values():
        ends: list[int] = []
        for start, minus_end in sorted(spans):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or -minus_end <= ends[-1]
            ends.append(-minus_end)


def test_a_call_takes_its_time_and_its_op_follows() -> None:
    trace = TraceBuilder(launch_us=5, latency_us=2)
    first, second = trace.launch("gemm", 20), trace.launch("gemm", 20)
    assert (first.start, first.end, first.op_start, first.op_end) == (0, 5_000, 7_000, 27_000)
    assert (second.start, second.end, second.op_start, second.op_end) == (5_000, 10_000, 27_000, 47_000)


def test_a_sync_lasts_until_its_stream_is_done_and_one_of_the_device_until_all_are() -> None:
    trace = TraceBuilder()
    on_main = trace.launch("gemm", 100)
    aside = trace.launch("gemm", 200, stream=20)
    assert trace.sync().end == on_main.op_end
    assert trace.sync("device").end == aside.op_end
    assert trace.sync().end == aside.op_end + 1_000


def test_a_full_queue_blocks_until_an_op_is_done() -> None:
    trace = TraceBuilder(queue=2)
    first, _, third = (trace.launch("gemm", 100) for _ in range(3))
    assert third.end == first.op_end + 5_000


def test_pageable_copies_block_and_pinned_ones_do_not() -> None:
    trace = TraceBuilder()
    pinned = trace.copy("HtoD", 100, memory="Pinned")
    pageable = trace.copy("HtoD", 100, memory="Pageable")
    assert pinned.end == 5_000
    assert pageable.end == pageable.op_end == 207_000


def test_a_stream_goes_on_when_the_event_that_it_waits_for_is_reached() -> None:
    trace = TraceBuilder()
    ahead = trace.launch("gemm", 100)
    trace.stream_wait(trace.record(stream=7), stream=20)
    assert trace.launch("relu", 10, stream=20).op_start == ahead.op_end


def test_copies_of_one_direction_share_an_engine() -> None:
    trace = TraceBuilder()
    first = trace.copy("HtoD", 100, stream=20)
    assert trace.copy("HtoD", 100, stream=21).op_start == first.op_end
    assert trace.copy("DtoH", 100, stream=22).op_start < first.op_end
