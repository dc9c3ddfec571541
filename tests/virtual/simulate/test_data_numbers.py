"""Which work uses the same memory."""

from __future__ import annotations

import numpy as np
from virtual.simulate.runs import begin, ops

from unstall.virtual.log import RECORD, USE
from unstall.virtual.simulation.data_numbers import DataNumbers

Uses = list[tuple[int, int, int]]


def _numbers(numbers: DataNumbers, *uses: Uses) -> list[int]:
    records, flat = np.zeros(len(uses), RECORD), [use for each in uses for use in each]
    records["uses"] = [len(each) for each in uses]
    rows = np.array([(*use, 0, b"") for use in flat], USE) if flat else np.zeros(0, USE)
    return [int(number) for number in numbers.of(records, rows)]


def test_the_same_ranges_have_the_same_number_and_others_have_others() -> None:
    numbers = DataNumbers()
    numbers.place(1, 1_024)
    numbers.place(2, 2_048)
    found = _numbers(numbers, [(1, 0, 16)], [(1, 0, 16)], [(1, 16, 16)], [(1, 0, 32)], [(2, 0, 16)], [])

    assert found[0] == found[1]
    assert len(set(found)) == 5
    assert found[-1] == 0


def test_the_order_of_ranges_does_not_matter() -> None:
    numbers = DataNumbers()
    one, other = _numbers(numbers, [(1, 0, 16), (2, 0, 16)], [(2, 0, 16), (1, 0, 16)])

    assert one == other


def test_memory_that_was_freed_and_is_taken_again_is_the_same() -> None:
    numbers = DataNumbers()
    numbers.place(1, 1_024)
    (before,) = _numbers(numbers, [(1, 0, 16)])
    numbers.free(1)
    numbers.place(2, 1_024)
    both = _numbers(numbers, [(1, 0, 16)], [(2, 0, 16)])
    numbers.forget_freed()
    after = _numbers(numbers, [(1, 0, 16)], [(2, 0, 16)])

    assert both == [before, before]
    assert after[0] != before == after[1]


def test_memory_whose_place_is_unknown_is_like_no_other() -> None:
    found = _numbers(DataNumbers(), [(4, 16, 64)], [(20, 0, 64)], [(-4, 16, 64)], [(4, 16, 64)])

    assert len(set(found)) == 3
    assert found[0] == found[3]
    assert all(_numbers(DataNumbers(), [(1 << 40, 0, 64)], [(-(1 << 20) - 1, 0, 64)]))  # late in a long run


def test_a_call_whose_result_gets_the_memory_of_the_one_before_repeats_it() -> None:
    log, simulator = begin()
    x = log.malloc(4_096)
    for _ in range(3):
        y = log.malloc(4_096)
        log.launch(10_000, uses=[(x, 0, 4_096), (y, 0, 4_096)], again=600)
        log.free(y)
    kept = log.malloc(4_096)
    other = log.malloc(4_096)
    log.launch(10_000, uses=[(x, 0, 4_096), (other, 0, 4_096)], again=600)

    lengths = [end - start for _, start, end in ops(simulator.timeline())]
    assert kept
    assert lengths == [10_000, 6_000, 6_000, 10_000]
