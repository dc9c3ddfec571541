"""The allocator model against the allocator of the torch that is installed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from unstall.virtual import Block, CachingAllocator

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.gpu
STREAM = 0


class RealAddresses:
    """Gives segments the addresses that the driver has just given torch's."""

    def __init__(self, segment_addresses: Callable[[], set[int]]) -> None:
        self._segment_addresses = segment_addresses
        self._known = segment_addresses()

    def reserve(self, size: int) -> int:
        now = self._segment_addresses()
        (address,) = now - self._known
        self._known = now
        return address

    def release(self, address: int, size: int) -> None:
        self._known.discard(address)


@pytest.fixture
def settled() -> Iterator[None]:
    """An allocator of torch's that holds nothing, with statistics from zero."""
    torch.cuda.init()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    if torch.cuda.memory_reserved():
        pytest.skip("this process already holds device memory")
    yield
    torch.cuda.empty_cache()


def segment_addresses() -> set[int]:
    return {segment["address"] for segment in torch.cuda.memory_snapshot()}


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("largest", [4096, 64 << 20, 256 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_every_statistic_and_address_is_torchs(seed: int, largest: int) -> None:
    chance = random.Random(seed)
    ours = CachingAllocator(torch.cuda.mem_get_info()[1], addresses=RealAddresses(segment_addresses))
    live: list[tuple[int, Block]] = []
    for _ in range(300):
        if live and chance.random() < 0.47:
            pointer, block = live.pop(chance.randrange(len(live)))
            torch.cuda.caching_allocator_delete(pointer)
            ours.free(block)
        else:
            size = int(largest ** chance.random())
            pointer = torch.cuda.caching_allocator_alloc(size, 0, STREAM)
            live.append((pointer, ours.malloc(size, STREAM)))
            assert live[-1][1].address == pointer
        real = torch.cuda.memory_stats()
        stats = ours.memory_stats()
        assert {key: stats[key] for key in real} == real
    for pointer, _ in live:
        torch.cuda.caching_allocator_delete(pointer)
