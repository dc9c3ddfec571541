"""Memory in the simulation: what the caching allocator does, when, and what the program is told of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from virtual.allocator.recorded_requests import H200_BYTES, Sequence, sequences
from virtual.simulate.logs import HOST, LIMITS, MIB, Fixed, Log
from virtual.simulate.runs import begin, calls, memory_stats

from unstall.errors import UnstallError
from unstall.timeline.columns import CopyDirection
from unstall.virtual import OutOfMemoryError
from unstall.virtual.allocator.caching import CachingAllocator
from unstall.virtual.log import CopyFlag, LogCode
from unstall.virtual.options import MachineOptions
from unstall.virtual.simulation.requests import worst_growth
from unstall.virtual.simulation.simulator import Simulator


def test_only_a_request_that_no_cached_block_fits_calls_the_driver() -> None:
    log, simulator = begin()
    first = log.malloc(1_000)
    log.free(first)
    log.malloc(1_000)
    timeline = simulator.timeline()
    assert calls(timeline) == [("cudaMalloc", 0, HOST.device_malloc)]
    memory = timeline.memory
    assert memory.allocated.tolist() == [1_024, 0, 1_024]
    assert memory.reserved.tolist() == [2 * MIB] * 3
    assert memory.time.tolist() == [50_200, 50_300, 50_500]


def test_temporaries_of_an_operator_are_a_peak_and_workspaces_stay() -> None:
    log, simulator = begin()
    for _ in range(2):
        log.launch(10, temporaries=((3_000, 5_000),), workspaces=(("cublas", 32 * MIB),))
    stats = memory_stats(simulator)
    assert stats["allocated_bytes.all.current"] == 32 * MIB
    assert stats["allocated_bytes.all.peak"] == 32 * MIB + 3_072 + 5_120
    log.launch(10, stream=3, workspaces=(("cublas", 32 * MIB),))
    assert memory_stats(simulator)["allocated_bytes.all.current"] == 64 * MIB


def test_passes_of_an_operator_take_their_temporaries_one_after_the_other() -> None:
    log, simulator = begin()
    log.launch(10, temporaries=((3_000, 5_000), (4_000,)))
    stats = memory_stats(simulator)
    assert stats["allocated_bytes.all.peak"] == 3_072 + 5_120
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 3


def test_a_block_that_another_stream_still_uses_is_not_handed_out() -> None:
    log, simulator = begin()
    block = log.malloc(30 * MIB)
    log.launch(1_000_000, stream=3)
    log.write(LogCode.USE_STREAM, block, stream=3)
    log.free(block)
    log.malloc(30 * MIB)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 60 * MIB
    assert memory_stats(simulator)["active_bytes.all.current"] == 60 * MIB


def test_and_is_once_that_stream_is_done() -> None:
    log, simulator = begin()
    block = log.malloc(30 * MIB)
    log.launch(1_000_000, stream=3)
    log.write(LogCode.USE_STREAM, block, stream=3)
    log.free(block)
    log.write(LogCode.ADVANCE, 2_000_000)
    log.malloc(30 * MIB)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 30 * MIB


def test_a_thread_whose_first_record_takes_memory_finds_blocks_that_others_wait_to_give_back() -> None:
    log, simulator = begin()
    block = log.malloc(30 * MIB)
    log.launch(1_000_000, stream=3)
    log.write(LogCode.USE_STREAM, block, stream=3)
    log.free(block)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 30 * MIB
    log.thread = 5
    log.malloc(30 * MIB)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 60 * MIB


@pytest.mark.parametrize("last", [LogCode.ADVANCE, LogCode.EMPTY_CACHE])
def test_events_of_freed_blocks_are_forgotten_once_their_stream_is_done(last: LogCode) -> None:
    log, simulator = begin()
    for _ in range(20):
        block = log.malloc(MIB)
        log.launch(1_000, stream=3)
        log.write(LogCode.USE_STREAM, block, stream=3)
        log.free(block)
    simulator.now_ns()
    assert any(event < 0 for event in simulator.simulation.events)
    log.write(last, 2_000_000)
    log.malloc(MIB)
    simulator.now_ns()
    assert not simulator.simulation.events


def test_emptying_the_cache_calls_the_driver_which_waits_for_the_device() -> None:
    log, simulator = begin()
    log.free(log.malloc(30 * MIB))
    log.launch(1_000_000)
    log.write(LogCode.EMPTY_CACHE)
    done = 50_300 + 2_000 + LIMITS.launch_latency + 1_000_000
    assert calls(simulator.timeline())[-1] == ("cudaFree", 52_300, done + LIMITS.wake_latency + HOST.device_free)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 0


def test_headroom_is_what_can_surely_be_had() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    assert log.headroom == {0: 100 * MIB}
    simulator.set_memory_fraction(0, 0.5)
    assert log.headroom == {0: 50 * MIB}
    simulator.make_room(0, log.malloc(30 * MIB))
    assert log.headroom == {0: 20 * MIB}


def test_out_of_memory_is_said_at_the_request_in_torchs_words() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.malloc(90 * MIB)
    with pytest.raises(
        Exception, match=r"Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 100.00 MiB"
    ) as told:
        simulator.make_room(0, log.malloc(9 * MIB))
    assert type(told.value).__name__ == OutOfMemoryError.__name__
    assert memory_stats(simulator)["num_ooms"] == 1


def test_what_an_emptied_cache_has_room_for_is_no_error() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    for block in [log.malloc(30 * MIB) for _ in range(3)]:
        log.free(block)
    simulator.make_room(0, log.malloc(50 * MIB))
    stats = memory_stats(simulator)
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["allocation.all.allocated"]) == (1, 0, 4)


def test_an_operator_whose_own_memory_does_not_fit_raises_at_its_launch_and_runs_nothing() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.malloc(90 * MIB)
    request = log.launch(1_000, temporaries=((30 * MIB,),))
    assert simulator.call_facts(0) == (30 * MIB, False)
    with pytest.raises(Exception, match=r"Tried to allocate 30.00 MiB"):
        simulator.make_room(0, request)
    assert not log.raised
    timeline = simulator.timeline()
    assert len(timeline.device) == 0
    assert not [note for note in timeline.meta.notes if "request" in note]


def test_an_operator_with_a_fallback_runs_it_if_its_own_memory_does_not_fit() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.malloc(60 * MIB)
    request = log.launch(1_000, temporaries=((30 * MIB,),), fallback_ns=9_000)
    log.malloc(20 * MIB)
    simulator.make_room(0, log.launch(1_000, temporaries=((30 * MIB,),), fallback_ns=9_000))
    timeline = simulator.timeline()
    names = [timeline.strings[name] for name in timeline.device.name]
    assert (request, names) == (2, ["kernel", "slower"])
    assert not log.raised
    assert memory_stats(simulator)["allocated_bytes.all.current"] == 80 * MIB


def test_workspaces_of_a_new_stream_are_left_room_for() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.launch(1_000, workspaces=(("cublas", 32 * MIB),))
    assert simulator.call_facts(0) == (1, False)  # so that it is asked for once the room is used up
    assert log.headroom == {0: (100 - 2 * 32) * MIB}


def test_a_failure_that_the_program_learns_of_late_is_noted() -> None:
    log, simulator = begin(total_bytes=100 * MIB)
    log.malloc(90 * MIB)
    log.launch(1_000, temporaries=((30 * MIB,),))
    simulator.drain()
    assert [type(error).__name__ for error in log.raised] == [OutOfMemoryError.__name__]
    notes = simulator.timeline().meta.notes
    assert "1 request for memory failed. The program got the error at a later call than it would on a GPU" in notes


@examples(200)
@given(
    size=st.integers(1, 200 * MIB),
    text=st.sampled_from(
        [
            "",
            "roundup_power2_divisions:2",
            "roundup_power2_divisions:[64:8,>:2]",
            "large_segment_size_mb:64",
            "expandable_segments:True",
            "expandable_segments:True,roundup_power2_divisions:2",
            "large_segment_size_mb:30,expandable_segments:True",
        ]
    ),
)
def test_no_request_grows_what_is_reserved_by_more_than_the_settings_worst_growth(size: int, text: str) -> None:
    usual, allocator = CachingAllocator(1 << 40, ""), CachingAllocator(1 << 40, text)
    usual.malloc(size, 0)
    allocator.malloc(size, 0)
    assert allocator.memory_reserved() <= usual.memory_reserved() * worst_growth(allocator.settings)


def test_a_failed_simulation_is_told_of_and_never_gone_on_with() -> None:
    log, simulator = begin()
    log.write(LogCode.LAUNCH, id=7)  # a signature that the log does not have
    with pytest.raises(IndexError):
        simulator.drain()
    log.launch(1_000)
    simulator.drain()
    for ask in (simulator.timeline, simulator.now_ns):
        with pytest.raises(UnstallError, match=r"broke off.*IndexError"):
            ask()


def test_a_finalizer_that_asks_while_the_simulation_runs_spoils_nothing() -> None:
    class Collects(Fixed):
        def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
            log.launch(10)
            simulator.now_ns()
            return super().copy_ns(size_bytes, direction, pinned)

    log = Log()
    simulator = Simulator(log, MachineOptions(), Collects())
    for size in (1_000, 2_000, 3_000):
        log.malloc(size)
        log.copy(size, CopyFlag.PINNED | CopyFlag.NON_BLOCKING)
    timeline = simulator.timeline()
    assert len(timeline.device) == 3
    assert len(simulator.timeline().device) == 3 + 3


def test_captured_requests_are_served_from_the_graphs_pool() -> None:
    log, simulator = begin()
    log.free(log.malloc(MIB))
    log.write(LogCode.CAPTURE_BEGIN, 1, 77, stream=3)
    log.malloc(MIB, stream=3)
    log.malloc(MIB)
    log.write(LogCode.CAPTURE_END, 1, stream=3)
    with simulator.allocator(0) as allocator:
        pools = {segment["segment_pool_id"] for segment in allocator.memory_snapshot()}
    assert pools == {(0, 0), (0, 77)}
    log.write(LogCode.GRAPH_FREE, 1)
    log.write(LogCode.EMPTY_CACHE)
    assert memory_stats(simulator)["reserved_bytes.all.current"] == 4 * MIB


def test_peaks_can_be_reset() -> None:
    log, simulator = begin()
    log.free(log.malloc(MIB))
    with simulator.allocator(0) as allocator:
        allocator.reset_peak_memory_stats()
        allocator.reset_accumulated_memory_stats()
    stats = memory_stats(simulator)
    assert (stats["allocated_bytes.all.peak"], stats["allocation.all.allocated"]) == (0, 0)


PLAIN = [sequence for sequence in sequences() if not sequence.settings and sequence.fraction is None]


@pytest.mark.parametrize("sequence", PLAIN, ids=lambda sequence: str(sequence.name))
def test_a_real_programs_requests_end_with_the_real_statistics(sequence: Sequence) -> None:
    log = Log()
    simulator = Simulator(log, MachineOptions(), Fixed(H200_BYTES))
    live: dict[int, int] = {}
    for request in sequence.requests:
        if request.action == "alloc":
            live[request.name] = log.malloc(request.size, stream=request.stream)
        elif request.action == "free":
            log.free(live.pop(request.name))
        elif request.action == "record_stream":
            log.write(LogCode.USE_STREAM, live[request.name], stream=request.stream)
        elif request.action == "free_all":
            for allocation in live.values():
                log.free(allocation)
            live.clear()
        elif request.action == "empty_cache":
            log.write(LogCode.EMPTY_CACHE)
    stats = memory_stats(simulator)
    real = sequence.requests[-1].after
    assert {key: stats.get(key) for key in real} == real


def test_a_copy_is_no_request() -> None:
    log, simulator = begin()
    log.copy(MIB, CopyFlag.DEVICE_TO_DEVICE | CopyFlag.NON_BLOCKING)
    assert memory_stats(simulator)["reserved_bytes.all.peak"] == 0
