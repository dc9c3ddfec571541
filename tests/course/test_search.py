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
        ("99.8 %", [7]),
        ("C++", [7]),
        ("numpy pin", [13]),
        ("nvidia-smi leak", [8, 25]),
        ("does pinning pay", [13]),
        ("matmul", [11]),
        ("tensorboard", [16]),
        ("x[mask]", [15]),
        ("last digits", [18]),
        ("cudnn.benchmark", [2]),
        ("parallel", [11]),
        ("torch.from_numpy", [13]),
        ("memory_allocated", [8]),
        ("timeit", [3, 22, 1]),
        ("zzzz", []),
    ],
)
def test_words_find_the_experiments_about_them_the_best_first(words: str, first: list[int]) -> None:
    numbers = [table()[name].number for name in about(words.split())]
    assert numbers[: len(first)] == first
    assert bool(numbers) == bool(first)


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("RuntimeError: CUDA error: device-side assert triggered", 17),
        ("My ResNet-50 forward pass takes 40 ms without a synchronize, and 17 ms with it. Is it broken?", 6),
        ("The profiler shows cudaLaunchKernel at 99.8 % of the time. Should I rewrite it in C++?", 7),
        ("nvidia-smi shows 135 MiB, but torch.cuda.memory_allocated() is 0. Is it a memory leak?", 8),
        ("I call loss.item() in each step for logging. How much does it cost?", 16),
        ("I put two matmuls on two streams, but they do not run in parallel. Why?", 11),
        ("Would a CUDA graph help my model, and what can go wrong?", 19),
        ("Why is the first iteration so slow? How do I benchmark?", 2),
        ("CPU and GPU results differ in the last digits. Is it a bug?", 18),
        ("Which lines of my code wait for the GPU, and which of them matter?", 15),
        ("Does non_blocking=True do anything if my batches are NumPy arrays or come from a DataLoader?", 13),
    ],
)
def test_a_whole_question_finds_the_experiment_that_answers_it_first(question: str, first: int) -> None:
    for words in ([question], question.split()):
        assert table()[about(words)[0]].number == first


def test_the_experiments_with_most_of_the_words_come_first_and_few_are_listed() -> None:
    assert about(["first", "iteration"]) == about(["iteration", "first"]) != []
    both = [table()[name].number for name in about(["barrier", "ResNet"])]
    assert both == [6, 15, 16, 24]  # only one experiment has ResNet, so that this word says more
    assert len(about(["how", "long", "does", "the", "host", "wait"])) <= 5
    assert about(["99"]) == about(["99", "7"]) == about([""]) == about(["?"]) == []


def test_words_by_which_an_experiment_is_searched_are_in_none_of_its_texts() -> None:
    for row in table().values():
        said = f"{row.question} {row.learn} {row.mine} {row.change}".lower().split()
        assert not set(row.searched.split()) & set(said)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("the_alocator", "; did you mean the_allocator_keeps_memory?"),
        ("leak", "; did you mean a_leak_or_the_cache or the_allocator_keeps_memory?"),
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
