"""Functions that would fool a benchmark: no wrong number without a verdict, and nothing left behind."""

from __future__ import annotations

import functools
import gc
import itertools
import mmap
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from measuring.running import facts

import unstall
from unstall.errors import UsageError
from unstall.guest import active

QUICK: dict[str, Any] = {"max_seconds": 0.03}


def _kinds(fn: Callable[..., Any], *args: Any, **options: Any) -> set[str]:
    return {each.kind for each in unstall.bench(fn, *args, **{**QUICK, **options}).verdicts if each.serious}


def test_an_iterator_is_used_up_by_the_first_call() -> None:
    assert "input changes" in _kinds(sum, (number for number in range(1000)))
    turns = itertools.cycle([1, 2])
    assert "input changes" in _kinds(lambda: next(turns))


@pytest.mark.parametrize("lazy", [lambda: map(str, range(9)), lambda: [iter(()), (each for each in "ab")], zip])
def test_what_is_returned_and_has_not_begun_works_later(lazy: Callable[[], Any]) -> None:
    assert "works later" in _kinds(lazy)


def test_coroutines_that_nobody_awaits_are_a_verdict_and_no_warnings() -> None:
    async def work() -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "works later" in _kinds(work)


def test_a_list_that_grows_is_an_input_that_changes() -> None:
    kept: list[int] = []
    assert "input changes" in _kinds(lambda: kept.append(1))


def test_a_name_that_is_bound_anew_is_an_input_that_changes() -> None:
    state = {"x": torch.ones(4)}

    def step() -> None:
        state["x"] = state["x"] * 0.5

    assert "input changes" in _kinds(step)


def test_an_attribute_that_is_bound_anew_is_an_input_that_changes() -> None:
    class Model:
        def __init__(self) -> None:
            self.x = torch.ones(4)

        def step(self) -> None:
            self.x = self.x + 1

    measured = unstall.bench(Model().step, **QUICK)
    assert any("self.x" in each.text for each in measured.verdicts if each.kind == "input changes")


def test_a_view_that_is_written_to_is_an_input_that_changes() -> None:
    rows = torch.ones(8, 4)

    def halve(row: torch.Tensor) -> None:
        row.mul_(0.5)

    assert "input changes" in _kinds(halve, rows[3])


def test_a_result_at_hand_is_no_computation() -> None:
    @functools.lru_cache
    def slow(n: int) -> int:
        return sum(range(n))

    assert "first call differs" in _kinds(slow, 1000)
    assert "first call differs" in _kinds(lambda: slow(1000))


def test_nan_is_named_and_a_mask_of_infinities_is_not() -> None:
    assert "NaN" in _kinds(torch.exp, torch.full((99,), float("nan")))
    mask = torch.full((99, 99), float("-inf")).triu(1)
    assert "NaN" not in _kinds(torch.exp, mask)


def test_gradients_that_add_up_are_said() -> None:
    x = torch.ones(10, requires_grad=True)

    def adds() -> None:
        (x * 2).sum().backward()

    def begins_anew() -> None:
        x.grad = None
        adds()

    assert unstall.bench(adds, **QUICK).has("input changes")
    assert not unstall.bench(begins_anew, **QUICK).has("input changes")


def test_a_process_that_grows_keeps_memory() -> None:
    kept: list[mmap.mmap] = []

    def grows() -> None:  # by 4 MiB of new pages: the heap has memory that earlier tests let go of
        kept.append(mmap.mmap(-1, 4 << 20))
        kept[-1][:: mmap.PAGESIZE] = bytes(len(kept[-1]) // mmap.PAGESIZE)

    assert "keeps memory" in _kinds(grows, max_seconds=0.5)


def test_calls_of_two_lengths_are_not_alike() -> None:
    turn = itertools.count()

    def two_lengths() -> int:
        return sum(range(100_000 if next(turn) % 2 else 5_000))

    assert "not converged" in _kinds(two_lengths, max_seconds=0.1)


def test_defaults_are_inputs_unless_they_are_given() -> None:
    zeros = torch.zeros(100)

    def f(x: torch.Tensor = zeros) -> torch.Tensor:
        return x.exp()

    assert "zeros" in _kinds(f)
    assert "zeros" not in _kinds(f, torch.ones(100))


class Interrupt:
    """Interrupts at its so manieth call."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left, self.error = at, error
        self.x = torch.ones(8)

    def __call__(self) -> torch.Tensor:
        self.left -= 1
        if not self.left:
            raise self.error
        return torch.dropout(self.x, 0.5, True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("at", [1, 2, 5, 8, 40])
@pytest.mark.parametrize("ask", ["bench", "compare", "timer"])
def test_who_interrupts_finds_all_as_it_was(ask: str, at: int, error: type[BaseException]) -> None:
    stops = Interrupt(at, error)
    before = _surroundings()
    asked: dict[str, Callable[[], Any]] = {
        "bench": lambda: unstall.bench(stops, num_threads=1, max_seconds=0.2),
        "compare": lambda: unstall.compare(  # with a tolerance: calls that measure rounding may fail
            {"stops": stops, "other": stops.x.clone}, ulp=1, num_threads=1, max_seconds=0.2
        ),
        "timer": lambda: unstall.Timer("stops()", globals={"stops": stops}).timeit(100),
    }
    with pytest.raises(error):
        asked[ask]()
    assert _surroundings() == before


def _surroundings() -> tuple[Any, ...]:
    return (
        gc.isenabled(),
        torch.get_num_threads(),
        random.getstate(),
        warnings.filters[:],
        set(threading.enumerate()),
        active._slot.recording,
    )


def test_comparisons_say_what_makes_their_times_mean_something_else() -> None:
    x = torch.ones(4)

    def lazily(v: torch.Tensor) -> Iterator[torch.Tensor]:
        yield v * 2

    found = unstall.compare({"at once": lambda v: v * 2, "lazily": lazily}, x, check=False, max_seconds=0.02)
    assert any(note.startswith("lazily: works later: the call returns a generator") for note in found.notes)


def test_coroutines_are_not_compared() -> None:
    async def work() -> None: ...

    with pytest.raises(UsageError, match="b returns a coroutine, of which nothing has run"):
        unstall.compare({"a": int, "b": work})


def test_a_comparison_leaves_the_arguments_alone_when_it_checks() -> None:
    index = torch.arange(4)
    seen: list[list[int]] = []

    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        seen.append(index.tolist())
        index += 1
        return x[index % 4]

    unstall.compare({"a": f, "b": f}, torch.rand(4), index, max_seconds=0.01)
    where, checked = seen[:2], seen[2:5]  # each once to see where its result is; then on copies, and in float64
    assert where == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert checked == [[2, 3, 4, 5]] * 3


@pytest.fixture(scope="module")
def virtual() -> dict[str, Any]:
    return facts("fooled")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("grows", "keeps memory"),
        ("grows", "input changes"),
        ("rebinds", "input changes"),
        ("graph_grows", "keeps memory"),
        ("in_threads", "other threads"),
        ("rarely_slow", "not converged"),
        ("lazily", "works later"),
        ("coroutine", "works later"),
        ("of_nan", "NaN"),
    ],
)
def test_each_is_flagged_on_a_virtual_gpu(virtual: dict[str, Any], name: str, kind: str) -> None:
    assert kind in virtual["serious"][name]


@pytest.mark.slow
def test_what_is_fine_is_not_flagged_on_a_virtual_gpu(virtual: dict[str, Any]) -> None:
    assert virtual["serious"]["fine"] == []


@pytest.mark.slow
def test_the_hosts_own_work_goes_by_the_machines_clock_beside_a_virtual_gpu(virtual: dict[str, Any]) -> None:
    assert virtual["lazily_ns"] > 50
    assert virtual["timer_s"] > 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("how", ["blocked_autorange", "adaptive_autorange"])
def test_a_timer_runs_what_a_model_computes_a_few_times(virtual: dict[str, Any], how: str) -> None:
    assert virtual[how]["runs"] < 300
    assert virtual[how]["blocks"] == pytest.approx(virtual[how]["blocks"][:1] * 2)
    assert virtual[how]["ns"] == pytest.approx(virtual["fine_ns"], rel=0.1)  # a block also waits for the device, once


@pytest.mark.slow
def test_a_timer_runs_a_statement_as_often_as_it_is_told(virtual: dict[str, Any]) -> None:
    assert 30 < virtual["timeit"] < 40
