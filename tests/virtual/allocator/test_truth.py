"""The caching allocator against a real one: every statistic after every call."""

from __future__ import annotations

import pytest
from virtual.allocator.recorded_requests import (
    H200_BYTES,
    RecordedAddresses,
    Sequence,
    replay,
    sequences,
    training_history,
    training_statistics,
)

from unstall.virtual import Block, CachingAllocator
from unstall.virtual.allocator.segments import TraceEntry


@pytest.mark.parametrize("sequence", sequences(), ids=lambda sequence: str(sequence.name))
def test_every_statistic_after_every_call_is_the_real_one(sequence: Sequence) -> None:
    for place, (request, stats) in enumerate(replay(sequence)):
        ours = {key: stats.get(key) for key in request.after}
        assert ours == request.after, f"after call {place}, {request.action} of {request.size} bytes"


def test_in_four_training_steps_every_block_lies_where_the_real_allocator_put_it() -> None:
    history = training_history()
    ours: list[TraceEntry] = []
    allocator = CachingAllocator(H200_BYTES, addresses=RecordedAddresses(history), observer=ours.append)
    live: dict[int, Block] = {}
    for entry in history:
        if entry.action == "alloc":
            live[entry.address] = allocator.malloc(entry.size, entry.stream)
        elif entry.action == "free_requested":
            allocator.free(live.pop(entry.address))
    assert len(ours) == 2298
    assert ours == list(history)
    stats = allocator.memory_stats()
    real = training_statistics()
    assert {key: stats[key] for key in real} == real
    assert real["reserved_bytes.all.peak"] == 2_061_500_416


def test_rows_that_each_fit_beside_the_last_reserve_33_554_432_until_a_larger_one_comes() -> None:
    allocator = CachingAllocator(H200_BYTES)
    reserved = []
    for columns in (2048, 2048, 1024, 3072):
        allocator.free(allocator.malloc(4096 * columns * 4, stream=0))
        reserved.append(allocator.memory_reserved())
    assert reserved == [33_554_432, 33_554_432, 33_554_432, 83_886_080]
    allocator.empty_cache()
    assert allocator.memory_reserved() == 0
    assert allocator.max_memory_reserved() == 83_886_080
    assert allocator.max_memory_allocated() == 50_331_648
