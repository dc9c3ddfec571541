"""Experiments are found by the words that people use for them."""

from __future__ import annotations

import pytest

from unstall.course.search import about, name_of
from unstall.course.table import names, table
from unstall.errors import UsageError


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("barrier", [15, 16, 24]),
        ("first iteration", [2]),
        ("warm-up", [2, 9]),
        ("warmup", [2, 9]),
        ("ResNet", [6]),
        ("CUDA graphs", [19]),
        ("cuda-graph-s", []),
        ("pinned", [13]),
        ("non_blocking", [13]),
        ("loss.item()", [16]),
        (".item()", [16]),
        ("waiting", [15]),
        ("leaks", [25]),
        ("OOM", [25]),
        ("benchmarking", [22]),
        ("timing", [1]),
        ("nvidia-smi", [8]),
        ("cudaLaunchKernel", [7]),
        ("device-side assert", [17]),
    ],
)
def test_words_find_the_experiments_about_them_the_best_first(words: str, first: list[int]) -> None:
    numbers = [table()[name].number for name in about(words.split())]
    assert numbers[: len(first)] == first
    assert bool(numbers) == bool(first)


def test_all_words_have_to_be_there_in_any_order() -> None:
    assert about(["first", "iteration"]) == about(["iteration", "first"]) != []
    assert about(["barrier", "ResNet"]) == []
    assert about(["99"]) == about(["99", "7"]) == about([""]) == about(["?"]) == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("the_alocator", "; did you mean the_allocator_keeps_memory?"),
        ("leak", "; did you mean a_leak_or_the_cache?"),
        ("bariers", "; did you mean barrier?"),
        ("Memroy", "; did you mean memory?"),
        ("zzzz", ""),
        ("99", ""),
    ],
)
def test_what_is_no_experiment_is_refused_with_what_is_near(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        name_of(word)
    assert str(refused.value) == f"{word!r} is no experiment{meant}; unstall course lists them"


def test_names_and_numbers_are_experiments() -> None:
    assert [name_of(name) for name in names()] == names()
    assert {name_of(str(row.number)): row for row in table().values()} == table()
