"""Where segments lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unstall.virtual.allocator.addresses import CHUNK, TopDownAddresses

MIB = 1 << 20
REAL: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("addresses_h200.json").read_text())
"""What `cudaMalloc` returned in processes on an H200, with and without cuDNN: `[size, address]` of each range that was
taken, and the address of each that was freed. In MiB, from the first address on.
"""


@pytest.mark.parametrize("process", REAL)
def test_addresses_are_the_drivers(process: str) -> None:
    real = REAL[process]
    addresses = TopDownAddresses()
    if real["cudnn"]:
        addresses.load_cudnn()
    here: dict[int, tuple[int, int]] = {}  # by real address in use: our address, size
    apart = set()
    for call in real["calls"]:
        if isinstance(call, int):
            addresses.release(*here.pop(call))
        else:
            size, there = call
            here[there] = addresses.reserve(size * MIB), size * MIB
            apart.add(here[there][0] // MIB - there)
    # The chunks with the driver's own memory lie elsewhere; all others lie together.
    assert len(apart) == (4 if real["cudnn"] else 3)


def test_a_new_chunk_lies_below_the_last() -> None:
    addresses = TopDownAddresses()
    first, second = addresses.reserve(66 * MIB), addresses.reserve(66 * MIB)
    assert first - second == 3 * CHUNK
    assert first % CHUNK == second % CHUNK == 0


def test_what_a_chunk_has_left_is_filled_first() -> None:
    addresses = TopDownAddresses()
    chunk = addresses.reserve(24 * MIB)
    assert [addresses.reserve(2 * MIB) - chunk for _ in range(2)] == [24 * MIB, 26 * MIB]
    assert addresses.reserve(24 * MIB) == chunk - CHUNK


def test_a_chunk_that_is_free_is_given_up() -> None:
    addresses = TopDownAddresses()
    first, second = addresses.reserve(66 * MIB), addresses.reserve(98 * MIB)
    addresses.release(first, 66 * MIB)
    addresses.release(second, 98 * MIB)
    assert addresses.reserve(130 * MIB) == first - 2 * CHUNK  # it ends where the first ended


def test_chunks_are_not_joined() -> None:
    addresses = TopDownAddresses()
    upper, lower = addresses.reserve(66 * MIB), addresses.reserve(66 * MIB)
    held = addresses.reserve(20 * MIB)  # in the lower one, which stays
    addresses.release(lower, 66 * MIB)
    assert held == lower + 66 * MIB
    assert addresses.reserve(70 * MIB) < lower < upper


def test_cudnn_leaves_room_above() -> None:
    addresses = TopDownAddresses()
    before = addresses.reserve(100 * MIB)
    addresses.load_cudnn()
    first, second, third = (addresses.reserve(180 * MIB) for _ in range(3))
    assert second - first == 180 * MIB
    assert third < first < before
