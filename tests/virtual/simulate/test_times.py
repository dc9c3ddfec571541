"""When things happen on the GPU of round figures: see `logs.HOST` and `logs.LIMITS`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from virtual.simulate.logs import HOST, LIMITS, MIB
from virtual.simulate.runs import begin, calls, ops

from unstall.timeline.columns import DeviceKind, HostKind
from unstall.virtual.log import TIMED, CopyFlag, LogCode, TorchCall

H2D, D2H, D2D = CopyFlag.HOST_TO_DEVICE, CopyFlag.DEVICE_TO_HOST, CopyFlag.DEVICE_TO_DEVICE


def test_an_operator_takes_its_dispatch_its_launch_and_then_the_devices_time() -> None:
    log, simulator = begin()
    with log.op("aten::add"):
        log.launch(5_000)
    timeline = simulator.timeline()
    assert calls(timeline, HostKind.OP) == [("aten::add", 1_000, 3_100)]
    assert calls(timeline) == [("cudaLaunchKernel", 1_000, 3_000)]
    assert ops(timeline) == [(0, 6_000, 11_000)]


def test_the_clock_goes_on_with_the_host_and_not_with_the_device() -> None:
    log, simulator = begin()
    log.launch(1_000_000)
    assert simulator.now_ns() == 2_000 + HOST.clock_read
    log.write(LogCode.SYNC_DEVICE)
    assert simulator.now_ns() == 5_000 + 1_000_000 + LIMITS.wake_latency + HOST.clock_read


def test_reading_the_clock_takes_time_and_the_next_call_begins_after_it() -> None:
    log, simulator = begin()
    assert [simulator.now_ns() for _ in range(3)] == [50, 100, 150]
    log.launch(1)
    assert calls(simulator.timeline()) == [("cudaLaunchKernel", 150, 2_150)]


def test_what_torch_does_without_an_operator_takes_the_time_of_each_thing_that_it_works_on() -> None:
    log, simulator = begin()
    log.write(LogCode.CALL, 3, flags=TorchCall.PARAMETER)
    assert simulator.now_ns() == 3 * HOST.parameter + HOST.clock_read
    log.write(LogCode.CALL, 1, flags=TorchCall.SET_STREAM)
    assert simulator.now_ns() == 3 * HOST.parameter + HOST.set_stream + 2 * HOST.clock_read


def test_an_operator_that_only_makes_a_view_takes_the_host_its_own_time_except_within_another() -> None:
    def taken(name: str) -> int:
        log, simulator = begin()
        with log.op(name):
            pass
        return simulator.now_ns() - HOST.operator_end - HOST.clock_read

    assert taken("aten::mul") == HOST.operator
    assert taken("aten::detach") < HOST.operator < taken("aten::view") < taken("aten::slice")
    log, simulator = begin()
    with log.op("aten::reshape"), log.op("aten::view"):
        pass
    inner = HOST.nested + 2 * HOST.operator_end + HOST.clock_read
    assert simulator.now_ns() == taken("aten::reshape") + inner


def test_kernels_of_an_operator_are_a_launch_each() -> None:
    log, simulator = begin()
    log.launch(10, kernels=3, host_ns=700)
    timeline = simulator.timeline()
    assert [start for _, start, _ in calls(timeline)] == [700, 2_700, 4_700]
    assert timeline.device.launch.tolist() == [0, 1, 2]


def test_the_host_works_before_each_kernel_of_an_operator() -> None:
    log, simulator = begin()
    log.launch(10, kernels=3, host_ns=700, before_each_ns=400)
    assert [start for _, start, _ in calls(simulator.timeline())] == [1_100, 3_500, 5_900]


def test_the_host_allocates_and_frees_the_temporary_memory_of_an_operator() -> None:
    log, simulator = begin()
    for _ in range(2):  # the first one has the driver's calls, too
        log.launch(10, host_ns=700, temporaries=((64, 128), (64,)))
    (_, _, end), (_, begins, _) = calls(simulator.timeline())[-2:]
    assert begins - end == 700 + 3 * (HOST.malloc + HOST.free)


def test_ops_of_a_stream_follow_each_other_with_a_gap() -> None:
    log, simulator = begin()
    log.launch(50_000)
    log.launch(50_000)
    assert ops(simulator.timeline()) == [(0, 5_000, 55_000), (0, 56_000, 106_000)]


def test_kernels_that_fill_the_device_do_not_overlap_on_two_streams() -> None:
    log, simulator = begin()
    log.launch(50_000)
    log.launch(50_000, stream=3)
    assert ops(simulator.timeline()) == [(0, 5_000, 55_000), (1, 55_000, 105_000)]


def test_kernels_that_leave_room_run_beside_each_other() -> None:
    log, simulator = begin()
    log.launch(50_000, fills=False)
    log.launch(50_000, fills=False, stream=3)
    assert ops(simulator.timeline()) == [(0, 5_000, 55_000), (1, 7_000, 57_096)]  # a thousandth of each meets


def test_a_copy_from_pinned_memory_runs_beside_a_kernel_and_the_host_goes_on() -> None:
    log, simulator = begin()
    log.launch(500_000)
    log.copy(MIB, H2D | CopyFlag.PINNED | CopyFlag.NON_BLOCKING, stream=3)
    timeline = simulator.timeline()
    assert ops(timeline)[1] == (1, 7_000, 7_000 + MIB // 10)
    assert calls(timeline)[1] == ("cudaMemcpyAsync", 2_000, 5_000)


def test_copies_of_one_direction_take_turns_and_those_of_two_do_not() -> None:
    log, simulator = begin()
    for stream, way in enumerate((H2D, H2D, D2H)):
        log.copy(MIB, way | CopyFlag.PINNED | CopyFlag.NON_BLOCKING, stream=stream)
    first, second, other = sorted(ops(simulator.timeline()))
    assert second[1] == first[2]
    assert other[1] == 11_000


def test_a_blocking_copy_is_followed_by_a_wait_for_its_stream() -> None:
    log, simulator = begin()
    log.copy(MIB, H2D | CopyFlag.PINNED)
    done = 5_000 + MIB // 10
    timeline = simulator.timeline()
    wake = LIMITS.wake_latency
    assert calls(timeline) == [("cudaMemcpyAsync", 0, 3_000), ("cudaStreamSynchronize", 3_000, done + wake)]


def test_a_large_copy_from_pageable_memory_blocks_though_it_was_asked_not_to() -> None:
    log, simulator = begin()
    log.copy(3 * MIB, H2D | CopyFlag.NON_BLOCKING)
    assert calls(simulator.timeline()) == [("cudaMemcpyAsync", 0, 5_000 + 3 * MIB + LIMITS.wake_latency)]


BUSY_NS = 10_000_000


@pytest.mark.parametrize(
    ("sizes", "waits"),
    [  # seen on an H100 with the device busy for 10 ms: which of several copies in a row returns after that
        ([64 << 10] * 6, 6 * "-"),
        ([65 << 10] * 6, "--W---"),
        ([MIB] * 6, "--W---"),
        ([2 * MIB] * 4, "-W--"),
        ([4 * MIB] * 3, "W--"),
        ([MIB, 64 << 10, MIB, 64 << 10, MIB], "----W"),
    ],
)
def test_pageable_memory_is_copied_through_two_pieces_of_the_drivers(sizes: list[int], waits: str) -> None:
    log, simulator = begin()
    log.launch(BUSY_NS)
    for size in sizes:
        log.copy(size, H2D | CopyFlag.NON_BLOCKING)
    copies = [(start, end) for name, start, end in calls(simulator.timeline()) if name == "cudaMemcpyAsync"]
    assert "".join("W" if start < BUSY_NS <= end else "-" for start, end in copies) == waits


@pytest.mark.parametrize("size", [65 << 10, MIB, 2 * MIB])
def test_the_device_copies_from_a_piece_as_from_pinned_memory(size: int) -> None:
    log, simulator = begin()
    log.copy(size, H2D | CopyFlag.NON_BLOCKING)
    log.copy(size, H2D | CopyFlag.PINNED)
    of_piece, of_pinned = ((end - start) for _, start, end in ops(simulator.timeline()))
    assert of_piece == of_pinned == size // 10


def test_the_pieces_of_each_device_are_its_own_and_a_wait_belongs_to_the_copys_call() -> None:
    log, simulator = begin(devices=2)
    log.launch(BUSY_NS)
    for device in (0, 0, 1, 0):
        log.write(LogCode.COPY, MIB, -1, flags=H2D | CopyFlag.NON_BLOCKING, device=device)
    timeline = simulator.timeline()
    ends = [end for name, _, end in calls(timeline) if name == "cudaMemcpyAsync"]
    assert [end > BUSY_NS for end in ends] == [False, False, False, True]
    assert sorted(timeline.device.launch[1:].tolist()) == np.flatnonzero(timeline.host.kind == HostKind.COPY).tolist()


def test_a_small_copy_from_pageable_memory_goes_into_the_queue() -> None:
    log, simulator = begin()
    log.copy(64 << 10, H2D | CopyFlag.NON_BLOCKING)
    assert calls(simulator.timeline()) == [("cudaMemcpyAsync", 0, 3_000)]


def test_a_value_is_read_once_all_before_it_is_done() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.write(LogCode.COPY, 4, -1, flags=D2H | CopyFlag.VALUE)
    log.write(LogCode.SYNC_STREAM)
    assert simulator.now_ns() == 105_000 + LIMITS.gap + 0 + LIMITS.wake_latency + HOST.clock_read


def test_an_event_holds_another_stream_and_not_the_host() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.write(LogCode.EVENT_RECORD, 7)
    log.write(LogCode.EVENT_WAIT, 7, stream=3)
    log.launch(10_000, stream=3)
    timeline = simulator.timeline()
    assert ops(timeline)[1] == (1, 105_000 + LIMITS.event_latency, 115_000 + LIMITS.event_latency)
    waits = timeline.waits
    assert (waits.stream.tolist(), waits.on_stream.tolist(), waits.inferred.tolist()) == ([1], [0], [False])
    assert timeline.text(timeline.host.name[waits.record[0]]) == "cudaEventRecordWithFlags"


def test_what_waits_for_an_event_does_not_hold_what_could_run_before_it() -> None:
    log, simulator = begin()
    log.copy(20 * MIB, H2D | CopyFlag.PINNED | CopyFlag.NON_BLOCKING, stream=3)
    log.launch(50_000, stream=3)
    log.launch(60_000)
    assert (0, 10_000, 70_000) in ops(simulator.timeline())


def test_an_event_that_was_never_recorded_is_not_waited_for() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.write(LogCode.SYNC_EVENT, 9)
    assert simulator.now_ns() == 3_000 + HOST.clock_read
    assert len(simulator.timeline().waits) == 0
    assert simulator.event_done(9)


def test_an_event_that_is_recorded_again_stands_for_the_last_time() -> None:
    log, simulator = begin()
    log.write(LogCode.EVENT_RECORD, 1)
    log.launch(100_000)
    log.write(LogCode.EVENT_RECORD, 1)
    log.write(LogCode.SYNC_EVENT, 1)
    assert simulator.now_ns() > 100_000


def test_queries_say_what_is_done_at_that_moment_of_the_virtual_clock() -> None:
    log, simulator = begin()
    log.launch(100_000)
    log.write(LogCode.EVENT_RECORD, 1)
    assert not simulator.event_done(1)
    assert not simulator.stream_done(0, 0)
    log.write(LogCode.ADVANCE, 200_000)
    assert simulator.event_done(1)
    assert simulator.stream_done(0, 0)
    assert simulator.stream_done(0, 99)


def test_time_between_events_is_the_devices() -> None:
    log, simulator = begin()
    log.launch(500_000)
    log.write(LogCode.EVENT_RECORD, 1)
    log.launch(100_000)
    log.launch(100_000)
    log.write(LogCode.EVENT_RECORD, 2)
    assert simulator.elapsed_ms(1, 2) == pytest.approx(0.202)
    assert simulator.elapsed_ms(2, 1) == pytest.approx(-0.202)
    with pytest.raises(ValueError, match="must be recorded"):
        simulator.elapsed_ms(1, 3)


def test_an_event_of_an_idle_stream_has_the_time_of_its_record() -> None:
    log, simulator = begin()
    log.write(LogCode.EVENT_RECORD, 1)
    log.write(LogCode.ADVANCE, 1_000_000)
    log.write(LogCode.EVENT_RECORD, 2)
    assert simulator.elapsed_ms(1, 2) == pytest.approx(1.0005)


def test_1e8_cycles_of_sleep_are_50_ms_that_the_host_does_not_wait_for() -> None:
    log, simulator = begin()
    log.write(LogCode.SLEEP, 10**8)
    assert simulator.now_ns() < 10_000
    log.write(LogCode.SYNC_STREAM)
    assert simulator.now_ns() == pytest.approx(50_530_000, rel=0.001)


def test_the_1023rd_launch_behind_a_sleeping_kernel_blocks() -> None:
    log, simulator = begin()
    log.write(LogCode.SLEEP, 10**8)
    for _ in range(1_100):
        log.launch(1)
    starts = [start for _, start, _ in calls(simulator.timeline())]
    waits = [number for number, (one, other) in enumerate(itertools.pairwise(starts)) if other - one > 10**6]
    assert waits == [1_022]


def test_devices_run_beside_each_other_and_are_waited_for_one_by_one() -> None:
    log, simulator = begin(devices=2)
    log.launch(900_000, device=1)
    log.launch(100_000)
    log.write(LogCode.SYNC_DEVICE)
    assert simulator.now_ns() < 200_000
    log.write(LogCode.SYNC_DEVICE, device=1)
    assert simulator.now_ns() > 900_000


def test_pinning_takes_time_by_its_size() -> None:
    log, simulator = begin()
    log.write(LogCode.PIN, 10 * MIB, 1)
    assert calls(simulator.timeline()) == [("cudaHostAlloc", 0, HOST.pin + 10 * 256 * HOST.pin_page)]


def test_a_clock_that_is_read_after_every_launch_never_stands() -> None:
    log, simulator = begin()
    times = []
    for _ in range(100):
        log.launch(10)
        times.append(simulator.now_ns())
    assert times == sorted(set(times))


@pytest.mark.parametrize(("fills", "start"), [(False, 7_000), (True, 105_000)])
def test_a_copy_within_the_device_waits_for_a_kernel_that_fills_it(fills: bool, start: int) -> None:
    log, simulator = begin()
    log.launch(100_000, fills=fills)
    log.copy(MIB, D2D | CopyFlag.NON_BLOCKING, stream=3)
    assert ops(simulator.timeline())[1][1] == start


def test_a_kernel_is_slower_beside_one_that_leaves_it_too_little() -> None:
    log, simulator = begin()
    log.launch(70_000, share=700)
    log.launch(70_000, share=700, stream=3)
    # From 7 to 75 us it runs at 176 thousandths of its rate: 11,968 ns of its work. The rest, alone, takes 58,032 ns.
    assert ops(simulator.timeline()) == [(0, 5_000, 75_000), (1, 7_000, 75_000 + 58_032)]


@pytest.mark.parametrize(("allocation", "longer"), [(1, False), (2, True)])
@pytest.mark.parametrize("captured", [False, True])
def test_streams_evict_each_others_data_unless_they_use_the_same(allocation: int, longer: bool, captured: bool) -> None:
    log, simulator = begin()
    if captured:
        log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=3)
        log.write(LogCode.EVENT_RECORD, 1, stream=3)
        log.write(LogCode.EVENT_WAIT, 1, stream=4)
    for at in range(4):
        uses = [(1 if at % 2 else allocation, 0, MIB), (9, MIB, MIB)]
        log.launch(50_000, stream=3 + at % 2, share=1, cached=500, uncached_ns=10_000, uses=uses)
    if captured:
        log.write(LogCode.CAPTURE_END, 1, stream=3)
        log.write(LogCode.GRAPH_LAUNCH, 1)
    lengths = sorted(end - start for _, start, end in ops(simulator.timeline()))
    met = 4 if captured else 3  # they have a thousandth of the device, and are that much slower beside each other
    expected = [50_000, 50_096, 60_000 + met, 60_116] if longer else [50_000, 50_000 + met, 50_096, 50_096]
    assert lengths == expected


@pytest.mark.parametrize(("flags", "later_ns"), [(0, 0), (TIMED, LIMITS.timed_event)])
def test_an_event_with_timing_takes_the_stream_some_time(flags: int, later_ns: int) -> None:
    log, simulator = begin()
    log.launch(10_000)
    log.write(LogCode.EVENT_RECORD, 1, flags=flags)
    log.launch(1_000)
    first, second = ops(simulator.timeline())

    assert second[1] - first[2] == LIMITS.gap + later_ns


def test_a_program_that_did_nothing_has_an_empty_timeline() -> None:
    _, simulator = begin()
    timeline = simulator.timeline()
    assert (len(timeline.host), len(timeline.device), len(timeline.memory), len(timeline.threads)) == (0, 0, 0, 1)


def test_a_read_that_a_launch_includes_is_simulated_once() -> None:
    log, simulator = begin()
    log.launch(3_000, name="Memcpy DtoH (Device -> Pinned)")
    simulator.drain()
    before, ops = simulator.simulation.now(0), simulator.simulation.history.ran.length
    log.write(LogCode.COPY, 8, -1, flags=CopyFlag.DEVICE_TO_HOST | CopyFlag.VALUE | CopyFlag.SIMULATED)
    log.write(LogCode.SYNC_STREAM, flags=CopyFlag.SIMULATED)
    simulator.drain()
    assert (simulator.call_facts(0), ops) == ((0, True), 1)
    assert simulator.simulation.history.ran.length == ops
    assert simulator.simulation.now(0) == before


def test_an_operator_waits_for_what_it_copies_from_the_host() -> None:
    log, simulator = begin()
    log.launch(50_000, name="Memcpy HtoD (Pageable -> Device)", kind=int(DeviceKind.COPY))
    simulator.drain()
    ((_, _, end),) = ops(simulator.timeline())
    assert simulator.simulation.now(0) > end
    assert simulator.call_facts(0) == (0, False)  # it reads no value


def test_kernels_take_longer_on_a_device_whose_clocks_are_lower() -> None:
    log, simulator = begin(devices=2, clocks=((1, 0.5),))
    for device in range(2):
        log.launch(100_000, device=device)
    simulator.drain()
    assert [end - start for _, start, end in ops(simulator.timeline())] == [100_000, 200_000]
