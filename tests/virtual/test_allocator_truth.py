"""The caching allocator against a real one: every statistic after every call."""

from __future__ import annotations

import pytest
from virtual.recorded_requests import H200_BYTES, Sequence, replay, sequences

from unstall.virtual import CachingAllocator

NONE_HERE = pytest.mark.skip(reason="no ../shared/truth beside the repository")


@pytest.mark.parametrize(
    "sequence", sequences() or [pytest.param(None, marks=NONE_HERE)], ids=lambda sequence: getattr(sequence, "name", "")
)
def test_every_statistic_after_every_call_is_the_real_one(sequence: Sequence) -> None:
    for place, (request, stats) in enumerate(replay(sequence)):
        ours = {key: stats.get(key) for key in request.after}
        assert ours == request.after, f"after call {place}, {request.action} of {request.size} bytes"


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
