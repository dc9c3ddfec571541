"""What the caching allocator does, case by case."""

from __future__ import annotations

from typing import Any

import pytest
from virtual.allocator.invented_requests import EventsOnDemand

from unstall.virtual import CachingAllocator, OutOfMemoryError

MIB = 1 << 20
GIB = 1 << 30
POOL = (0, 1)


def only_side(stream: int) -> bool:
    return stream == 7


def states(allocator: CachingAllocator) -> list[Any]:
    snapshot: list[Any] = allocator.memory_snapshot()
    return [[(block["size"], block["state"]) for block in segment["blocks"]] for segment in snapshot]


class TestReuse:
    def test_of_two_that_fit_the_smaller_serves(self) -> None:
        allocator = CachingAllocator(GIB)
        large, small = allocator.malloc(40 * MIB, 0), allocator.malloc(30 * MIB, 0)
        allocator.free(large)
        allocator.free(small)
        assert allocator.malloc(30 * MIB - 512, 0).address == small.address

    def test_a_block_of_another_stream_does_not(self) -> None:
        allocator = CachingAllocator(GIB)
        allocator.free(allocator.malloc(30 * MIB, 0))
        allocator.malloc(30 * MIB, 1)
        assert allocator.memory_reserved() == 60 * MIB

    def test_a_large_block_is_split_only_if_more_than_1_mib_is_left(self) -> None:
        allocator = CachingAllocator(GIB)
        allocator.free(allocator.malloc(30 * MIB, 0))
        assert allocator.malloc(29 * MIB, 0).size == 30 * MIB
        allocator = CachingAllocator(GIB)
        allocator.free(allocator.malloc(30 * MIB, 0))
        assert allocator.malloc(29 * MIB - 512, 0).size == 29 * MIB - 512

    def test_a_block_that_may_not_be_split_serves_what_leaves_less_than_20_mib_of_it(self) -> None:
        allocator = CachingAllocator(GIB, "max_split_size_mb:64")
        large = allocator.malloc(100 * MIB, 0)
        allocator.free(large)
        assert allocator.malloc(80 * MIB, 0).size == 80 * MIB
        assert allocator.malloc(80 * MIB + 512, 0).address == large.address
        assert allocator.memory_reserved() == 180 * MIB

    def test_a_block_is_freed_once(self) -> None:
        allocator = CachingAllocator(GIB)
        block = allocator.malloc(1, 0)
        allocator.free(block)
        with pytest.raises(ValueError, match="invalid device pointer"):
            allocator.free(block)

    def test_a_block_of_no_bytes_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least one byte, not 0"):
            CachingAllocator(GIB).malloc(0, 0)


class TestRecordStream:
    def test_a_block_that_another_stream_uses_is_reused_once_its_event_is_done(self) -> None:
        events = EventsOnDemand()
        allocator = CachingAllocator(GIB, events=events)
        block = allocator.malloc(30 * MIB, 0)
        allocator.record_stream(block, 1)
        allocator.free(block)
        assert states(allocator) == [[(30 * MIB, "active_pending_free")]]
        assert allocator.malloc(30 * MIB, 0).address != block.address
        assert allocator.memory_stats()["active.all.current"] == 2
        events.finish()
        assert allocator.malloc(30 * MIB, 0).address == block.address
        assert allocator.memory_reserved() == 60 * MIB

    def test_its_own_stream_needs_no_event(self) -> None:
        allocator = CachingAllocator(GIB, events=EventsOnDemand())
        block = allocator.malloc(30 * MIB, 0)
        allocator.record_stream(block, 0)
        allocator.free(block)
        assert allocator.memory_stats()["active.all.current"] == 0

    def test_emptying_the_cache_waits_for_the_event(self) -> None:
        allocator = CachingAllocator(GIB, events=EventsOnDemand())
        block = allocator.malloc(30 * MIB, 0)
        allocator.record_stream(block, 1)
        allocator.free(block)
        allocator.empty_cache()
        assert allocator.memory_reserved() == 0
        assert allocator.memory_stats()["num_sync_all_streams"] == 1


class TestFullDevice:
    def test_the_cache_is_given_up_before_a_request_fails(self) -> None:
        allocator = CachingAllocator(100 * MIB)
        allocator.free(allocator.malloc(60 * MIB, 0))
        allocator.malloc(70 * MIB, 0)
        stats = allocator.memory_stats()
        assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_device_free"]) == (1, 0, 1)

    def test_the_error_says_what_torch_would_say(self) -> None:
        allocator = CachingAllocator(2 * GIB, other_bytes=500 * MIB)
        allocator.malloc(GIB, 0)
        allocator.malloc(1000, 0)
        with pytest.raises(OutOfMemoryError) as caught:
            allocator.malloc(GIB, 0)
        assert str(caught.value) == (
            "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which"
            " 522.00 MiB is free. Including non-PyTorch memory, this process has 1.49 GiB memory in use."
            " Of the allocated memory"
            " 1.00 GiB is allocated by PyTorch, and 2.00 MiB is reserved by PyTorch but unallocated. If reserved but"
            " unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid"
            " fragmentation.  See documentation for Memory Management "
            " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )
        assert allocator.memory_stats()["num_ooms"] == 1

    def test_a_fraction_of_the_device_limits_what_is_reserved(self) -> None:
        allocator = CachingAllocator(GIB)
        allocator.set_per_process_memory_fraction(0.25)
        allocator.malloc(200 * MIB, 0)
        with pytest.raises(OutOfMemoryError, match=r"memory in use\. 256\.00 MiB allowed; Of the"):
            allocator.malloc(57 * MIB, 0)

    def test_more_than_an_exabyte_is_refused_at_once(self) -> None:
        with pytest.raises(OutOfMemoryError, match="more than 1EB"):
            CachingAllocator(GIB).malloc((1 << 60) + 1, 0)

    def test_garbage_is_collected_above_the_threshold_the_oldest_first(self) -> None:
        allocator = CachingAllocator(GIB, "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9")
        blocks = [allocator.malloc(size * MIB, 0) for size in (180, 130, 140)]
        allocator.free(blocks[0])
        for _ in range(4):
            allocator.free(allocator.malloc(1536 << 10, 1))
        allocator.free(blocks[1])
        assert allocator.malloc(300 * MIB, 0).size == 300 * MIB
        left = [sum(size for size, _ in segment) // MIB for segment in states(allocator)]
        assert sorted(left) == [20, 130, 140, 300]

    def test_large_blocks_that_may_not_be_split_are_given_back_first(self) -> None:
        allocator = CachingAllocator(300 * MIB, "max_split_size_mb:64")
        for block in [allocator.malloc(size * MIB, 0) for size in (40, 150, 100)]:
            allocator.free(block)
        allocator.malloc(200 * MIB, 0)
        stats = allocator.memory_stats()
        assert (stats["num_alloc_retries"], stats["num_device_free"]) == (0, 2)
        assert (stats["oversize_segments.current"], stats["oversize_allocations.current"]) == (1, 1)
        assert stats["max_split_size"] == 64 * MIB


class TestExpandableSegments:
    def test_a_segment_grows_by_pages_of_20_mib_and_takes_what_was_free_at_its_end(self) -> None:
        allocator = CachingAllocator(GIB, "expandable_segments:True")
        first = allocator.malloc(30 * MIB, 0)
        second = allocator.malloc(25 * MIB, 0)
        assert second.address == first.address + 30 * MIB
        assert states(allocator) == [
            [(30 * MIB, "active_allocated"), (25 * MIB, "active_allocated"), (5 * MIB, "inactive")]
        ]
        stats = allocator.memory_stats()
        assert (stats["segment.all.current"], stats["inactive_split.all.current"]) == (0, 0)

    def test_emptying_the_cache_gives_back_whole_pages_from_its_midst(self) -> None:
        allocator = CachingAllocator(GIB, "expandable_segments:True")
        blocks = [allocator.malloc(30 * MIB, 0) for _ in range(4)]
        allocator.free(blocks[1])
        allocator.free(blocks[2])
        allocator.empty_cache()
        assert allocator.memory_reserved() == 80 * MIB
        assert states(allocator) == [
            [(30 * MIB, "active_allocated"), (10 * MIB, "inactive")],
            [(10 * MIB, "inactive"), (30 * MIB, "active_allocated")],
        ]
        again = allocator.malloc(50 * MIB, 0)
        assert again.address == blocks[1].address
        assert allocator.memory_reserved() == 120 * MIB

    def test_a_device_that_fills_up_while_a_segment_grows_keeps_what_it_had(self) -> None:
        allocator = CachingAllocator(100 * MIB, "expandable_segments:True")
        allocator.malloc(30 * MIB, 0)
        with pytest.raises(OutOfMemoryError, match=r"Tried to allocate 90\.00 MiB"):
            allocator.malloc(90 * MIB, 0)
        assert allocator.memory_reserved() == 40 * MIB


class TestPrivatePools:
    def test_a_capture_allocates_from_its_own_pool_on_its_streams_only(self) -> None:
        allocator = CachingAllocator(GIB)
        allocator.free(allocator.malloc(30 * MIB, 7))
        allocator.capture_begin(POOL, only_side)
        captured, beside = allocator.malloc(30 * MIB, 7), allocator.malloc(30 * MIB, 0)
        allocator.capture_end(POOL)
        snapshot: list[Any] = allocator.memory_snapshot()
        pools = {segment["address"]: segment["segment_pool_id"] for segment in snapshot}
        assert (pools[captured.address], pools[beside.address]) == (POOL, (0, 0))
        assert allocator.memory_reserved() == 90 * MIB

    def test_its_memory_is_kept_until_no_graph_holds_the_pool(self) -> None:
        allocator = CachingAllocator(GIB)
        for _ in range(2):
            allocator.capture_begin(POOL, only_side)
            allocator.free(allocator.malloc(30 * MIB, 7))
            allocator.capture_end(POOL)
        assert allocator.memory_stats()["reserved_bytes_by_private_pools.0_1.all.current"] == 30 * MIB
        allocator.release_pool(POOL)
        allocator.empty_cache()
        assert allocator.memory_reserved() == 30 * MIB
        allocator.release_pool(POOL)
        allocator.empty_cache()
        assert allocator.memory_reserved() == 0
        with pytest.raises(ValueError, match=r"no graph holds the private pool \(0, 1\)"):
            allocator.release_pool(POOL)

    def test_a_block_freed_during_a_capture_waits_for_its_end_and_for_streams_used_before_it(self) -> None:
        events = EventsOnDemand()
        allocator = CachingAllocator(GIB, events=events)
        before, within = allocator.malloc(30 * MIB, 0), allocator.malloc(40 * MIB, 0)
        allocator.record_stream(before, 1)
        allocator.capture_begin(POOL, only_side)
        allocator.record_stream(within, 1)
        allocator.free(before)
        allocator.free(within)
        allocator.malloc(30 * MIB, 0)
        assert allocator.memory_stats()["active.all.current"] == 3
        allocator.capture_end(POOL)
        allocator.process_events()
        assert allocator.memory_stats()["active_bytes.all.current"] == 60 * MIB
        events.finish()
        allocator.process_events()
        assert allocator.memory_stats()["active_bytes.all.current"] == 30 * MIB

    def test_while_one_captures_the_cache_is_neither_emptied_nor_given_up(self) -> None:
        allocator = CachingAllocator(100 * MIB)
        allocator.free(allocator.malloc(60 * MIB, 0))
        allocator.capture_begin(POOL, only_side)
        with pytest.raises(RuntimeError, match="while a graph is captured"):
            allocator.empty_cache()
        with pytest.raises(OutOfMemoryError):
            allocator.malloc(60 * MIB, 7)
        with pytest.raises(RuntimeError, match="already recording"):
            allocator.capture_begin(POOL, only_side)
        allocator.capture_end(POOL)
        with pytest.raises(RuntimeError, match="not currently recording"):
            allocator.capture_end(POOL)


class TestStatistics:
    def test_every_key_of_torch_is_there(self) -> None:
        stats = CachingAllocator(GIB).memory_stats()
        pools = "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes"
        names = [*pools.split(), "inactive_split_bytes", "requested_bytes"]
        expected = {f"{name}.{pool}" for name in names for pool in ("all", "large_pool", "small_pool")}
        expected |= {"oversize_allocations", "oversize_segments"}
        counters = {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"}
        single = counters | {"num_oom_rejections", "max_split_size"}
        assert set(stats) - single == {f"{e}.{k}" for e in expected for k in ("current", "peak", "allocated", "freed")}
        assert list(stats) == sorted(stats)
        assert stats["max_split_size"] == -1

    def test_a_reset_peak_starts_from_what_is_there(self) -> None:
        allocator = CachingAllocator(GIB)
        allocator.free(allocator.malloc(60 * MIB, 0))
        kept = allocator.malloc(30 * MIB, 0)
        allocator.reset_peak_memory_stats()
        allocator.reset_accumulated_memory_stats()
        assert allocator.max_memory_allocated() == kept.size == 30 * MIB
        stats = allocator.memory_stats()
        assert (stats["num_device_alloc"], stats["allocated_bytes.all.allocated"]) == (0, 0)
        assert stats["reserved_bytes.all.peak"] == 60 * MIB
