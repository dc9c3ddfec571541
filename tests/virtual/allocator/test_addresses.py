"""Where segments lie."""

from __future__ import annotations

from unstall.virtual.allocator.addresses import CHUNK, TopDownAddresses

MIB = 1 << 20


def test_a_new_chunk_lies_below_the_last() -> None:
    addresses = TopDownAddresses()
    first, second = addresses.reserve(66 * MIB), addresses.reserve(66 * MIB)
    assert first - second == 3 * CHUNK
    assert first % CHUNK == second % CHUNK == 0


def test_what_a_chunk_has_left_is_filled_first() -> None:
    addresses = TopDownAddresses()
    chunk = addresses.reserve(20 * MIB)
    assert [addresses.reserve(2 * MIB) - chunk for _ in range(2)] == [20 * MIB, 22 * MIB]
    assert addresses.reserve(20 * MIB) == chunk - CHUNK


def test_ranges_that_were_given_back_are_one_again() -> None:
    addresses = TopDownAddresses()
    first, second, third = (addresses.reserve(CHUNK) for _ in range(3))
    addresses.release(first, CHUNK)
    addresses.release(third, CHUNK)
    addresses.release(second, CHUNK)
    assert addresses.reserve(3 * CHUNK) == third
