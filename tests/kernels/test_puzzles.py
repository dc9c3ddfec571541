"""The fourteen puzzles: their values, and the races that appear if one barrier is taken away."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba: not installed")

from unstall.course.experiments.puzzles import PUZZLES
from unstall.kernels.inspect_kernel import inspect_kernel
from unstall.kernels.report import KernelReport

_BARRIER = "cuda.syncthreads()"


def _name(puzzle: ModuleType) -> str:
    return puzzle.__name__.rpartition(".")[2]


_BY_NAME = {_name(puzzle): puzzle for puzzle in PUZZLES}


def _launch(puzzle: ModuleType) -> tuple[KernelReport, np.ndarray]:
    out = np.zeros_like(puzzle.reference(*puzzle.INPUTS))
    return inspect_kernel(puzzle.kernel, puzzle.GRID, puzzle.BLOCK, *puzzle.INPUTS, out), out


def _without_barrier(name: str, number: int, folder: Path) -> ModuleType:
    """Returns the puzzle without its n-th barrier, counted from 0. All lines keep their numbers."""
    parts = Path(str(_BY_NAME[name].__file__)).read_text().split(_BARRIER)
    path = folder / f"{name}_{number}.py"
    path.write_text(_BARRIER.join(parts[: number + 1]) + "pass" + _BARRIER.join(parts[number + 1 :]))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", _BY_NAME)
def test_a_puzzle_gives_numpys_values(name: str) -> None:
    puzzle = _BY_NAME[name]
    _, out = _launch(puzzle)
    assert len(_BY_NAME) == 14
    np.testing.assert_array_equal(out, puzzle.reference(*puzzle.INPUTS))


@pytest.mark.parametrize("name", _BY_NAME)
def test_a_solved_puzzle_has_no_race(name: str) -> None:
    report, _ = _launch(_BY_NAME[name])
    assert report.races == ()


_LOADS_AND_ADDS = {
    ("sums[lane] = {}", "writes", "sums[lane] += sums[lane + half]", "reads"),
    ("sums[lane] += sums[lane + half]", "reads", "sums[lane] += sums[lane + half]", "writes"),
}
_PLANTED = {
    ("shared_memory", 0): {
        ("tile[lane] = a[first + lane]", "writes", "out[first + mirror] = tile[mirror] + 10", "reads")
    },
    ("pooling", 0): {
        (load, "writes", "out[i] = tile[lane] + tile[lane + 1] + tile[lane + 2]", "reads")
        for load in ("tile[lane + 2] = a[i] if i < a.size else 0", "tile[lane] = a[i - 2] if i >= 2 else 0")
    },
    ("dot_product", 0): {
        (load.format("a[lane] * b[lane] if lane < a.size else 0"), *rest) for load, *rest in _LOADS_AND_ADDS
    },
    ("convolution", 0): {
        (load, "writes", "total += tile[lane + tap] * factors[tap]", "reads")
        for load in (
            "tile[lane] = a[i] if i < a.size else 0",
            "tile[WIDTH + lane] = a[i + WIDTH] if i + WIDTH < a.size else 0",
            "factors[lane] = weights[lane]",
        )
    },
    ("prefix_sum", 0): {
        (
            "sums[lane] = a[i] if i < a.size else 0",
            "writes",
            "before = sums[lane - step] if lane >= step else float32(0)",
            "reads",
        ),
        ("before = sums[lane - step] if lane >= step else float32(0)", "reads", "sums[lane] += before", "writes"),
    },
    ("prefix_sum", 1): {
        ("before = sums[lane - step] if lane >= step else float32(0)", "reads", "sums[lane] += before", "writes"),
    },
    ("axis_sum", 0): {
        (load.format("a[row, lane] if lane < a.shape[1] else 0"), *rest) for load, *rest in _LOADS_AND_ADDS
    },
    **{
        ("matrix_multiply", number): {
            (load, "writes", "total += left[y, k] * right[k, x]", "reads")
            for load in (
                "left[y, x] = a[row, first + x] if row < a.shape[0] and first + x < a.shape[1] else 0",
                "right[y, x] = b[first + y, column] if first + y < b.shape[0] and column < b.shape[1] else 0",
            )
        }
        for number in (0, 1)
    },
}
"""By puzzle and number of the missing barrier: (line, what it does, other line, what that does) of each race."""


@pytest.mark.parametrize(("name", "number"), _PLANTED)
def test_without_one_barrier_both_lines_of_each_race_are_named(name: str, number: int, tmp_path: Path) -> None:
    report, _ = _launch(_without_barrier(name, number, tmp_path))
    found = {
        (race.first.place.source, race.first.does, race.second.place.source, race.second.does) for race in report.races
    }
    assert found == _PLANTED[name, number]
    assert {(race.space, race.between) for race in report.races} == {("shared", "threads")}


def test_every_barrier_of_every_puzzle_is_taken_away_once() -> None:
    barriers = {
        (name, number)
        for name, puzzle in _BY_NAME.items()
        for number in range(len(re.findall(re.escape(_BARRIER), Path(str(puzzle.__file__)).read_text())))
    }
    assert barriers == set(_PLANTED)


@pytest.mark.parametrize(
    ("name", "reads", "most", "writes"),
    [
        ("map", 8, 1, 8),
        ("zip", 16, 2, 8),
        ("guard", 20, 1, 20),
        ("broadcast", 42, 2, 21),
        ("pooling", 24, 2, 20),  # 20, and two before each of the blocks but the first
        ("matrix_multiply", 144, 4, 35),  # each element of a (7, 6) and of b (6, 5), for two columns or rows of blocks
    ],
)
def test_global_memory_is_read_as_often_as_the_puzzle_allows(name: str, reads: int, most: int, writes: int) -> None:
    report, _ = _launch(_BY_NAME[name])
    counts = report.traffic.counts[0]
    assert counts.space == "global"
    assert (counts.reads.total, counts.reads.most, counts.writes.total) == (reads, most, writes)
