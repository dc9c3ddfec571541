"""What is a race, and what is not, with the words of a report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba: not installed")

from numba import cuda, float32, float64, int64

from unstall.document import terminal
from unstall.kernels.inspect_kernel import inspect_kernel

# mypy: disable-error-code="no-untyped-def"


@cuda.jit
def mirrored(a, out):
    tile = cuda.shared.array(8, float32)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    out[i] = tile[7 - i]


@cuda.jit
def all_to_one(out):
    out[0] = cuda.threadIdx.x


@cuda.jit
def histogram(a, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, a[i], 1)


@cuda.jit
def histogram_that_is_read(a, out, first):
    i = cuda.grid(1)
    cuda.atomic.add(out, a[i], 1)
    first[i] = out[0]


@cuda.jit
def neighbours_of_blocks(out):
    i = cuda.grid(1)
    out[i] = i
    cuda.syncthreads()
    if i:
        out[i] += out[i - 1]


@cuda.jit
def two_types_in_dynamic_memory(out):
    small = cuda.shared.array(0, float32)
    large = cuda.shared.array(0, float64)
    i = cuda.threadIdx.x
    large[i] = i
    out[i] = small[0]


def test_the_words_of_a_race(golden: Callable[[str, str], None]) -> None:
    report = inspect_kernel(mirrored, 1, 8, np.arange(8, dtype=np.float32), np.zeros(8, np.float32), gpu="t4")
    golden("kernels/mirrored.txt", terminal.render(report.document(scrub_paths=True)))


def test_threads_that_write_one_element_race() -> None:
    (race,) = inspect_kernel(all_to_one, 1, 4, np.zeros(1)).races
    assert (race.memory, race.space, race.index, race.elements) == ("out", "global", (0,), 1)
    assert race.first.place == race.second.place
    assert race.first.thread != race.second.thread


def test_one_thread_alone_has_no_race() -> None:
    assert inspect_kernel(all_to_one, 1, 1, np.zeros(1)).races == ()


def test_atomics_do_not_race_with_each_other() -> None:
    counts = np.zeros(2, np.int64)
    report = inspect_kernel(histogram, 2, 4, np.array([0, 1, 1, 0, 1, 0, 1, 1]), counts)
    assert report.races == ()
    assert list(counts) == [3, 5]
    assert report.traffic.counts[0].atomics.total == 8


def test_atomics_race_with_plain_reads_within_a_block_and_across_blocks() -> None:
    arguments = np.array([0, 1, 1, 0, 1, 0, 1, 1]), np.zeros(2, np.int64), np.zeros(8, np.int64)
    races = inspect_kernel(histogram_that_is_read, 2, 4, *arguments).races
    assert [(race.between, race.first.does, race.second.does, race.index) for race in races] == [
        ("threads", "updates atomically", "reads", (0,)),
        ("blocks", "updates atomically", "reads", (0,)),
    ]


def test_a_barrier_orders_no_blocks() -> None:
    races = inspect_kernel(neighbours_of_blocks, 2, 1, np.zeros(2)).races
    (race,) = races
    assert (race.between, race.index, race.first.block, race.second.block) == ("blocks", (0,), (0, 0, 0), (1, 0, 0))
    assert (race.first.place.source, race.second.place.source) == ("out[i] = i", "out[i] += out[i - 1]")
    assert "nothing orders blocks" in race.fix


def test_elements_of_two_types_race_if_they_share_bytes() -> None:
    races = inspect_kernel(two_types_in_dynamic_memory, 1, 2, np.zeros(2), shared_bytes=16).races
    assert [(race.memory, race.index, race.first.thread, race.second.thread) for race in races] == [
        ("large", (0,), (0, 0, 0), (1, 0, 0))
    ]


def test_two_arguments_of_the_same_memory_race() -> None:
    @cuda.jit
    def shift(a, out):
        i = cuda.threadIdx.x
        out[i] = a[i + 1]

    line = np.arange(5, dtype=np.float32)
    (race,) = inspect_kernel(shift, 1, 4, line, line[:4]).races
    assert race.elements == 3


def test_views_and_slices_are_followed_to_their_array() -> None:
    @cuda.jit
    def rows(a):
        row = a[cuda.threadIdx.x % 2]
        row[1:3] = 1

    (race,) = inspect_kernel(rows, 1, 4, np.zeros((2, 4), np.int64)).races
    assert (race.memory, race.index, race.elements) == ("a", (0, 1), 4)


def test_two_shared_arrays_of_one_line_are_two() -> None:
    @cuda.jit
    def pair(out):
        one, other = cuda.shared.array(2, int64), cuda.shared.array(2, int64)
        i = cuda.threadIdx.x
        one[i] = i
        other[1 - i] = 10
        out[i] = one[i]

    out = np.zeros(2, np.int64)
    assert inspect_kernel(pair, 1, 2, out).races == ()
    assert list(out) == [0, 1]
