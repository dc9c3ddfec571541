"""What a recorded run becomes as a program: calls, waits and ops, with figures worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
from msgspec.structs import replace
from replay.recorded import Trace, dated, listed, only, program, program_of
from traces import Event

from unstall.replay.engine import replay
from unstall.replay.program import QUEUE_CAPACITY, Code
from unstall.timeline.columns import HostKind

SYNCS = (Code.SYNC_STREAM, Code.SYNC_DEVICE, Code.SYNC_EVENT)


def without_call(trace: Trace, number: int) -> list[Event]:
    """The trace's events but for one of its API calls."""
    calls = [event for event in trace.events if event["cat"] == "cuda_runtime"]
    return [event for event in trace.events if event is not calls[number]]


# Launches.


def test_a_launch_is_its_call_and_an_op_that_arrives_after_it() -> None:
    trace = Trace(latency_us=3)
    trace.launch("gemm", 10)
    trace.work(50)
    trace.launch("gemm", 20)
    made = program(trace)
    assert listed(made) == [("LAUNCH", 0, 0, 5_000, 0), ("LAUNCH", 0, 50_000, 5_000, 0)]
    assert dated(made, "latency", "duration") == [(3_000, 10_000), (3_000, 20_000)]


def test_the_delay_of_ops_is_learned_from_those_that_nothing_else_held_up() -> None:
    """The third of them stands in the queue for 93 µs, which says nothing about its arrival."""
    trace = Trace(latency_us=7)
    trace.launch("gemm", 10)
    trace.work(50)
    trace.launch("gemm", 100)
    trace.launch("gemm", 10)
    assert dated(program(trace), "latency") == [(7_000,), (7_000,), (7_000,)]


def test_a_graph_is_one_call_with_many_ops_and_its_own_gaps() -> None:
    trace = Trace(latency_us=3)
    trace.graph([10, 20, 30], gap_us=1.5)
    made = program(trace)
    # Its first op began 8 µs after its call did, which takes 5.
    assert listed(made) == [("LAUNCH", 0, 0, 5_000, 0), ("CALL", -1, 0, 0, 0)]
    assert dated(made, "latency", "gap", "duration") == [(3_000, 1_000, 10_000), (0, 1_500, 20_000), (0, 1_500, 30_000)]
    assert made.launcher.tolist() == [1, 1, 1]


# Copies.


def test_a_pageable_copy_blocks_the_host_until_it_is_done() -> None:
    trace = Trace(latency_us=3)
    trace.copy("HtoD", 100, memory="Pageable")
    made = program(trace)
    # What the call does before the copy begins is work of the host.
    assert listed(made) == [("LAUNCH", 0, 0, 8_000, 0), ("SYNC_STREAM", 0, 0, 0, 0)]
    assert dated(made, "latency", "duration") == [(0, 100_000)]


def test_a_copy_that_begins_long_before_its_call_returns_arrives_within_the_call() -> None:
    """The call returns 84 µs before the copy ends, when it has staged the last part of the data."""
    trace = Trace(latency_us=3)
    trace.copy("HtoD", 4_000, memory="Pageable", behind_us=-84)
    trace.work(200)
    trace.launch("gemm", 20)
    made = program(trace)
    copy, gemm = listed(made)[0], listed(made)[-1]
    assert copy == ("LAUNCH", 0, 0, 8_000, 0)
    assert gemm == ("LAUNCH", 0, 200_000, 5_000, 0)
    times = replay(made)
    assert (times.op_start - times.op_start[0]).tolist() == [0, 4_000_000 - 84_000 + 200_000 + 8_000]


def test_a_pageable_copy_that_is_too_small_to_block_does_not() -> None:
    trace = Trace(latency_us=30)
    trace.copy("HtoD", 2, memory="Pinned", size=4096)
    events = [event | {"name": event["name"].replace("Pinned", "Pageable")} for event in trace.events]
    assert listed(program(trace, events)) == [("LAUNCH", 0, 0, 5_000, 0)]


def test_a_pinned_copy_does_not_block() -> None:
    trace = Trace()
    trace.copy("HtoD", 100)
    assert listed(program(trace)) == [("LAUNCH", 0, 0, 5_000, 0)]


def test_a_pinned_copy_that_is_waited_for_is_a_wait_of_its_own() -> None:
    trace = Trace()
    trace.copy("HtoD", 100)
    trace.work(4)
    trace.sync()
    assert [row[:3] for row in listed(program(trace))] == [("LAUNCH", 0, 0), ("SYNC_STREAM", 0, 4_000)]


def test_each_way_has_a_copy_engine_of_its_own_on_each_device() -> None:
    trace = Trace(devices=2)
    for device in (0, 1):
        for direction in ("HtoD", "DtoH", "DtoD"):
            trace.copy(direction, 10, device=device)
    made = program(trace)
    assert made.engines == 6
    assert dated(made, "engine") == [(0,), (1,), (-1,), (2,), (3,), (-1,)]


def test_a_copy_that_a_later_one_overtook_does_not_hold_its_engine() -> None:
    trace = Trace(latency_us=3)
    trace.launch("gemm", 100)
    waits = trace.copy("HtoD", 20)
    trace._engine.clear()
    overtakes = trace.copy("HtoD", 20, stream=20)
    assert (waits.op_start, overtakes.op_start) == (108_000, 18_000)
    made = program(trace)
    assert dated(made, "engine") == [(-1,), (-1,), (0,)]
    assert replay(made).op_start.tolist() == [8_000, 108_000, 18_000]


# Waits.


def test_a_wait_for_a_stream() -> None:
    trace = Trace()
    trace.launch("gemm", 100, stream=7)
    trace.launch("gemm", 500, stream=20)
    trace.sync(stream=7)
    assert [row[:2] for row in only(program(trace), *SYNCS)] == [("SYNC_STREAM", 0)]


def test_a_wait_for_the_device() -> None:
    trace = Trace()
    trace.launch("gemm", 100, stream=20)
    trace.sync("device")
    assert [row[:2] for row in only(program(trace), *SYNCS)] == [("SYNC_DEVICE", -1)]


def test_a_wait_for_an_event_is_one_for_its_record() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    event = trace.record()
    trace.launch("gemm", 500)
    trace.event_sync(event)
    made = program(trace)
    (row,) = (i for i, code in enumerate(made.instructions.code) if code == Code.SYNC_EVENT)
    assert made.instructions.code[made.instructions.target[row]] == Code.RECORD
    assert made.instructions.stream[made.instructions.target[row]] == 0
    assert replay(made).end[row] == trace.now == 108_000


def test_a_wait_for_an_event_that_nobody_knows_is_one_for_the_device() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    trace.event_sync(trace.record())
    assert [row[:2] for row in only(program(trace, without_call(trace, 1)), *SYNCS)] == [("SYNC_DEVICE", -1)]


def test_a_wait_that_the_device_belies_is_no_wait() -> None:
    """It returns after 2 µs, and what its stream was given takes 98 µs more."""
    trace = Trace()
    trace.launch("gemm", 100)
    trace.sync()
    events = [event | ({"dur": 2_000} if "Stream" in event["name"] else {}) for event in trace.events]
    made = program(trace, events)
    assert only(made, *SYNCS) == []
    assert [row[3] for row in only(made, Code.CALL)] == [2_000]


def test_how_long_a_wait_takes_by_itself_is_learned_from_those_that_found_all_done() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    trace.sync()
    for _ in range(3):
        trace.work(4)
        trace.sync()
    assert [row[3] for row in only(program(trace), *SYNCS)] == [1_000] * 4


def test_how_long_a_wait_takes_to_return_is_learned_from_those_that_waited() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    trace.sync()
    events = [event | ({"dur": event["dur"] + 9_000} if "Stream" in event["name"] else {}) for event in trace.events]
    assert [row[4] for row in only(program(trace, events), *SYNCS)] == [9_000]


def test_a_stream_that_waits_for_a_known_event_goes_on_when_others_did() -> None:
    trace = Trace(wake_us=4)
    trace.launch("gemm", 100, stream=7)
    trace.stream_wait(trace.record(stream=7), stream=20)
    held = trace.launch("gemm", 10, stream=20)
    made = program(trace)
    assert [row[:2] + row[4:] for row in only(made, Code.STREAM_WAIT)] == [("STREAM_WAIT", 1, 4_000)]
    assert dated(made, "after") == [(-1,), (-1,)]
    assert replay(made).op_start.tolist() == [8_000, held.op_start] == [8_000, 112_000]


@pytest.mark.parametrize("streams", [2, 30])
def test_a_wait_for_a_stream_that_others_hold_one_after_the_other_is_one_for_the_first(streams: int) -> None:
    """Nothing runs on them meanwhile: each waits for the event of the one before."""
    trace = Trace()
    for stream in range(20, 20 + streams):
        trace.launch("relu", 1, stream=stream)
    trace.launch("gemm", 1_000, stream=7)
    event = trace.record(stream=7)
    for stream in range(20, 20 + streams):
        trace.stream_wait(event, stream=stream)
        event = trace.record(stream=stream)
    trace.sync(stream=event.stream)
    made = program(trace)
    (wait,) = only(made, *SYNCS)
    assert wait[0] == "SYNC_STREAM"
    assert wait[3] < 10_000  # of 1 ms: the rest is the kernel's


def test_a_stream_that_waits_for_an_unknown_event_follows_the_op_that_had_just_ended() -> None:
    trace = Trace(wake_us=6)
    trace.launch("gemm", 100, stream=7)
    trace.launch("relu", 300, stream=30)
    trace.stream_wait(trace.record(stream=7), stream=20)
    trace.launch("gemm", 10, stream=20)
    made = program(trace, without_call(trace, 2))
    assert only(made, Code.STREAM_WAIT) == []
    assert dated(made, "after", "lag")[2] == (0, 6_000)
    assert replay(made).op_start.tolist() == [8_000, 13_000, 114_000]


# The launch queue.


def full_queue(kernel_us: float, launches: int = 500) -> Trace:
    trace = Trace(queue=300)
    for _ in range(launches):
        trace.launch("gemm", kernel_us)
    return trace


def test_how_long_the_queue_is_shows_in_the_calls_that_wait_for_room() -> None:
    assert program(full_queue(50)).capacity == 300


def test_a_few_calls_that_wait_for_room_show_it_too() -> None:
    """As behind a collective that waits for a slow rank: the host launches three times while the queue is full."""
    made = program(full_queue(2000, 304))
    assert made.capacity == 300
    assert {row[3] for row in listed(made)} == {5_000}


def test_a_call_that_waited_for_room_is_as_long_as_the_others() -> None:
    """As recorded, those of the second half took 50 µs."""
    trace = full_queue(50)
    recorded = [event["dur"] for event in trace.events if event["cat"] == "cuda_runtime"]
    assert (recorded[0], recorded[-1]) == (5_000, 50_000)
    assert {row[3] for row in listed(program(trace))} == {5_000}


def test_calls_that_waited_for_room_wait_for_it_again() -> None:
    trace = full_queue(50)
    made = program(trace)
    faster = replace(made, ops=replace(made.ops, duration=made.ops.duration // 10))
    ends = [int(replay(edited).end[-1]) for edited in (made, faster)]
    assert ends[0] == pytest.approx(trace.now, abs=5_000)
    assert ends[1] == 500 * 5_000


def test_a_queue_that_is_never_full_is_as_long_as_an_h200s() -> None:
    assert program(full_queue(5)).capacity == QUEUE_CAPACITY


# What the file lacks.


def three_launches() -> Trace:
    trace = Trace(latency_us=3)
    trace.launch("first", 10)
    trace.launch("second", 10)
    trace.work(50)
    trace.launch("third", 10)
    return trace


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_an_op_whose_call_is_lost_runs_when_it_did(lost: int) -> None:
    trace = three_launches()
    timeline = trace.timeline(without_call(trace, lost))
    made = program(trace, without_call(trace, lost))
    assert replay(made).op_start.tolist() == timeline.device.start[made.ops.device].tolist()


def test_an_op_at_the_head_of_a_stream_without_a_call_is_launched_before_all_others() -> None:
    trace = three_launches()
    made = program(trace, without_call(trace, 0))
    assert made.instructions.host[made.launcher].tolist() == [-1, 0, 1]
    assert made.threads == 2
    assert made.instructions.thread[made.launcher].tolist() == [1, 0, 0]


def test_a_graph_behind_an_op_without_a_call_keeps_all_of_its_own() -> None:
    trace = Trace()
    trace.launch("first", 10)
    trace.graph([10, 20, 30])
    made = program(trace, without_call(trace, 0))
    assert made.instructions.host[made.launcher].tolist() == [-1, 0, 0, 0]


def test_an_op_whose_call_is_lost_further_on_belongs_to_the_call_before_it() -> None:
    trace = three_launches()
    made = program(trace, without_call(trace, 1))
    assert made.instructions.host[made.launcher].tolist() == [0, 0, 1]


def test_without_any_host_event_the_device_runs_as_it_did() -> None:
    trace = three_launches()
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    made = program(trace, kernels)
    assert replay(made).op_start.tolist() == [0, 10_000, 60_000]


def test_centuries_in_a_file_are_cut_to_what_can_be_replayed() -> None:
    timeline = three_launches().timeline()
    end = timeline.device.end.copy()
    end[2] += 100 * 365 * 86_400 * 10**9
    made = program_of(replace(timeline, device=replace(timeline.device, end=end)))
    # A share of 2**57 ns for each of 5 instructions' three times and 3 ops' four.
    assert int(made.ops.duration[2]) == (1 << 57) // (5 * 3 + 3 * 4)
    assert replay(made).op_start.tolist() == [8_000, 18_000, 68_000]


# Allocations.


def test_a_free_during_which_the_device_ran_dry_waits_for_it() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    trace.free(20)
    made = listed(program(trace))
    assert made[1:] == [("SYNC_DEVICE", -1, 0, 0, 0), ("CALL", -1, 0, 20_000, 0)]


def test_an_allocation_while_the_device_is_at_work_is_work_of_the_host() -> None:
    trace = Trace()
    trace.launch("gemm", 100)
    trace.call("cudaMalloc", 30)
    trace.launch("gemm", 10)
    assert listed(program(trace))[1:] == [("LAUNCH", 0, 30_000, 5_000, 0)]


# Threads.


def test_the_thread_of_autograd_is_the_callers() -> None:
    trace = Trace()
    with trace.op("aten::mm", sequence=1):
        trace.launch("forward", 10)
    with trace.backward("MmBackward0", 1):
        trace.work(30)
        trace.launch("backward", 10)
    trace.launch("after", 10)
    made = program(trace)
    assert set(made.instructions.thread.tolist()) == {0}
    assert [row[2] for row in listed(made)] == [0, 30_000, 0]


@pytest.mark.parametrize("annotated", [False, True])
def test_it_is_so_too_if_the_caller_waits_within_an_operator(annotated: bool) -> None:
    """As the forward of a torch.autograd.Function does that calls torch.autograd.grad."""
    trace = Trace()
    with trace.op("Function"):
        trace.work(1)
        with trace.annotation("part") if annotated else nullcontext():
            with trace.op("aten::mm", sequence=1):
                trace.launch("forward", 10)
            with trace.backward("MmBackward0", 1):
                trace.work(30)
                trace.launch("backward", 10)
    made = program(trace)
    assert set(made.instructions.thread.tolist()) == {0}


def test_a_thread_that_launches_nothing_is_left_out() -> None:
    trace = Trace()
    with trace.on_thread(900, wait=False), trace.op("aten::stack"):
        trace.work(300)
    trace.launch("gemm", 10)
    made = program(trace)
    assert sorted(made.thread_of.tolist()) == [-1, -1, 0]  # the device's own rows are a thread of the file too
    assert set(made.instructions.thread.tolist()) == {0}


def concurrent(wait: Callable[[Trace], object] = lambda trace: None) -> Trace:
    trace = Trace()
    with trace.on_thread(900, wait=False):
        for _ in range(3):
            with trace.op("aten::mul"):
                trace.work(40)
                trace.launch("gemm", 10, stream=20)
    for _ in range(3):
        with trace.op("aten::add"):
            trace.work(40)
            trace.launch("gemm", 10, stream=7)
            wait(trace)
    return trace


def test_a_thread_that_works_at_the_same_time_is_one_of_its_own() -> None:
    made = program(concurrent())
    assert sorted(made.instructions.thread[made.launcher].tolist()) == [0, 0, 0, 1, 1, 1]
    assert made.threads == 3  # one more for ops without a call


def test_threads_at_the_same_time_do_not_hold_each_other_up() -> None:
    trace = concurrent(Trace.item)
    made = program(trace)
    timeline = trace.timeline()
    assert replay(made).op_start.tolist() == timeline.device.start[made.ops.device].tolist()


def test_a_thread_beside_the_steps_goes_on_after_a_pause_when_they_have_got_so_far() -> None:
    trace = Trace()
    trace.launch("gemm", 10, stream=7)
    trace.work(500)
    with trace.on_thread(900, wait=False):
        for _ in range(3):
            with trace.op("aten::mul"):
                trace.work(40)
                trace.launch("gemm", 10, stream=20)
    for name in ("gemm", "softmax", "relu"):
        with trace.op("aten::add"):
            trace.work(40)
            trace.launch(name, 10, stream=7)
    made = program(trace)
    timeline = trace.timeline()
    (join,) = np.flatnonzero(made.instructions.code == Code.JOIN)
    woken_by = made.instructions.host[made.instructions.target[join]]
    assert (
        woken_by
        == np.flatnonzero(timeline.host.kind == HostKind.LAUNCH)[
            timeline.host.start[timeline.host.kind == HostKind.LAUNCH].argmin()
        ]
    )
    assert any("it had waited for the thread of the steps" in note for note in made.notes)
    assert replay(made).op_start.tolist() == timeline.device.start[made.ops.device].tolist()


# Devices.


def test_a_wait_for_one_device_is_not_one_for_another() -> None:
    trace = Trace(devices=2)
    trace.launch("gemm", 100, device=0)
    trace.launch("gemm", 900, device=1)
    trace.sync("device", device=0)
    made = program(trace)
    assert made.device_of_stream.tolist() == [0, 1]
    assert [row[:2] for row in only(made, *SYNCS)] == [("SYNC_DEVICE", 0)]
    assert replay(made).end[made.instructions.code == Code.SYNC_DEVICE].tolist() == [108_000]


def test_a_free_waits_for_its_own_device() -> None:
    trace = Trace(devices=2)
    trace.launch("gemm", 900, device=0)
    trace.launch("gemm", 100, device=1)
    trace.free(20, device=1)
    assert [row[:2] for row in only(program(trace), *SYNCS)] == [("SYNC_DEVICE", 1)]


# Steps.


def test_the_marks_of_steps_stand_where_the_steps_begin_and_end() -> None:
    trace = Trace()
    for _ in range(3):
        with trace.step():
            trace.launch("gemm", 10)
        trace.work(7)
    timeline = trace.timeline()
    made = program(trace)
    steps = timeline.host.kind == HostKind.ANNOTATION
    times = replay(made)
    assert times.end[made.step_starts].tolist() == timeline.host.start[steps].tolist()
    assert times.end[made.step_ends].tolist() == timeline.host.end[steps].tolist()


def test_where_one_step_ends_as_the_next_begins_it_ends_first() -> None:
    trace = Trace()
    for _ in range(4):
        trace.launch("gemm", 10)
        with trace.optimizer():
            trace.launch("sgd", 3)
            trace.work(9)
    made = program(trace)
    assert (made.step_ends[:-1] < made.step_starts[1:]).all()
    # From the last launch to the end of a step is the step's own.
    assert made.instructions.work[made.step_ends].tolist() == [9_000] * len(made.step_ends)


def test_a_graph_whose_delay_nobody_knows_does_not_run_before_its_call() -> None:
    """All other ops begin 3 µs before their calls return; the graph's first one stands in the queue."""
    trace = Trace(latency_us=-3)
    for _ in range(4):
        trace.launch("gemm", 100)
        trace.work(200)
    trace.launch("gemm", 100)
    graph = trace.graph([10, 10])
    made = program(trace)
    times = replay(made)
    assert made.instructions.call.min() == 0
    assert times.op_start[-2] >= graph.start
