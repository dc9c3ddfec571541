"""`Timer` is torch's to the user; what it returns goes into torch's own tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.utils import benchmark

from unstall import Timer
from unstall.errors import UsageError
from unstall.measuring.timing import Timing


class Clock:
    """Each run of `work` takes a millisecond, reading the clock a nanosecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1e-9
        return self.now

    def work(self) -> None:
        self.now += 1e-3


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_block_is_of_as_many_runs_as_asked_for(clock: Clock) -> None:
    timing = Timer("work()", timer=clock, globals={"work": clock.work}).timeit(7)
    assert timing.number_per_run == 7
    assert timing.times == [pytest.approx(1e-3, rel=1e-5)]
    assert (timing.median, timing.mean, timing.iqr) == (timing.times[0], timing.times[0], 0)


def test_blocks_go_on_until_the_least_run_time(clock: Clock) -> None:
    seen: list[tuple[int, float]] = []
    timer = Timer("work()", timer=clock, globals={"work": clock.work})
    timing = timer.blocked_autorange(lambda number, took: seen.append((number, took)), min_run_time=0.1)
    assert sum(timing.raw_times) == pytest.approx(0.1, rel=0.02)
    assert [took for _, took in seen] == timing.raw_times
    assert timing.median == pytest.approx(1e-3, rel=1e-5)


def test_adaptive_blocks_stop_once_they_are_steady(clock: Clock) -> None:
    timing = Timer("work()", timer=clock, globals={"work": clock.work}).adaptive_autorange()
    assert len(timing.times) >= 4
    assert timing.meets_confidence(0.01)
    assert not timing.has_warnings


def test_adaptive_blocks_end_when_their_time_is_over(clock: Clock) -> None:
    pauses = iter(range(10**6))

    def unsteady() -> None:
        clock.now += 1e-3 * (1 + 9 * (next(pauses) % 2))

    timing = Timer("work()", timer=clock, globals={"work": unsteady}).adaptive_autorange(0.01, max_run_time=3.0)
    assert 3.0 < sum(timing.raw_times) < 6.0
    assert timing.has_warnings


def test_the_setup_is_run_before_each_block_and_not_timed(clock: Clock) -> None:
    runs: list[int] = []

    def prepare() -> None:
        clock.now += 5
        runs.append(1)

    names = {"work": clock.work, "prepare": prepare}
    timing = Timer("work()", "prepare()", timer=clock, globals=names).timeit(10)
    assert timing.median == pytest.approx(1e-3, rel=1e-5)
    assert len(runs) == 2


@pytest.mark.parametrize("stmt", ["x + 1", "y = x + 1\ny * 2", "for _ in range(2):\n    x + 1", "x + 1  # once"])
def test_statements_are_those_of_torch(stmt: str) -> None:
    assert Timer(stmt, "x = torch.ones(3)").timeit(3).median > 0


def test_what_a_statement_gives_a_name_to_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[list[int]] = []
    timer = Timer("y = x + 1\nfor i in range(2):\n    z = y * 2", "x = 1")
    monkeypatch.setattr(timer, "_waiting", lambda known: waited.append)
    timer.timeit(1)
    assert sorted(waited[-1]) == [1, 2, 4]


def test_the_users_globals_are_left_alone() -> None:
    names = {"x": 1}
    Timer("x", globals=names).timeit(1)
    assert names == {"x": 1}


def test_threads_are_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    Timer("f()", globals={"f": lambda: seen.append(torch.get_num_threads())}, num_threads=3).timeit(1)
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


def test_torchs_own_compare_takes_what_it_returns() -> None:
    timers = [Timer("x + 1", "x = torch.ones(3)", label="add", sub_label=name, description="d") for name in "ab"]
    table = str(benchmark.Compare([timer.timeit(5).to_torch() for timer in timers]))
    assert "add" in table
    assert len([line for line in table.splitlines() if line.strip().startswith(("a ", "b "))]) == 2


@pytest.mark.parametrize("name", ["median", "mean", "iqr", "times", "title", "as_row_name", "significant_figures"])
def test_figures_are_those_that_torch_makes_of_the_same_times(name: str) -> None:
    timer = Timer("x", globals={"x": 1}, sub_label="s")
    ours = Timing(10, [1.0, 1.1, 1.2, 1.3, 2.0], timer.timeit(1).task_spec)
    assert getattr(ours, name) == pytest.approx(getattr(ours.to_torch(), name))


def test_what_is_merged_is_of_one_task() -> None:
    one, other = Timer("1", label="a"), Timer("2", label="b")
    merged = Timing.merge([one.timeit(2), other.timeit(2), one.timeit(4)])
    assert [len(each.times) for each in merged] == [2, 1]


def test_it_says_what_was_timed(clock: Clock) -> None:
    timer = Timer("work()", timer=clock, globals={"work": clock.work}, label="Work", sub_label="once")
    assert repr(timer.timeit(10)) == "Work: once\n  1.00 ms\n  1 measurement, 10 runs per measurement, 1 thread"


@pytest.mark.parametrize(
    "made", [lambda: Timer("x;", language="c++"), lambda: Timer("1", global_setup="#include <vector>")]
)
def test_other_languages_are_refused(made: Callable[[], Timer]) -> None:
    with pytest.raises(UsageError, match="times Python alone"):
        made()


def test_what_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        Timer("x +")


def test_a_function_of_whatever_name_is_called() -> None:
    calls: list[int] = []
    Timer("inner(3)", globals={"inner": calls.append}).timeit(4)
    assert set(calls) == {3}
