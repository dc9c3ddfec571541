"""Frees joined with the allocations that they free."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from unstall.timeline.allocations import joined


def test_a_free_belongs_to_the_last_allocation_at_its_address() -> None:
    #             earlier's free, block, reused, other device, unknown address, only reserved changed
    address = np.array([8, 8, 8, 8, 8, -1, 8])
    device = np.array([0, 0, 0, 0, 1, 0, 0])
    size = np.array([-4, 2, -2, 3, 5, 7, 0])
    allocation, freed = joined(device, address, size)

    assert allocation.tolist() == [-1, 1, 1, 3, 4, -1, -1]
    assert freed.tolist() == [7, 2, 7, 7, 7, 7, 7]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=60))
def test_what_was_never_freed_is_what_a_dict_still_holds(calls: list[tuple[int, int]]) -> None:
    held: dict[int, int] = {}
    changes = []
    for address, size in calls:
        freed = held.pop(address, None)
        if freed is None:
            held[address] = size
        changes.append((address, size if freed is None else -freed))
    addresses, sizes = (np.array([change[i] for change in changes], np.int64) for i in range(2))
    _, freed_at = joined(np.zeros(len(changes), np.int64), addresses, sizes)

    kept = (sizes > 0) & (freed_at == len(changes))
    assert dict(zip(addresses[kept].tolist(), sizes[kept].tolist(), strict=True)) == held
