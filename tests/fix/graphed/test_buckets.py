"""Calls of many sizes are served by few graphs where padding changes no bit, and by none of them elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fix.graphed.harness import on_tape
from fix.graphed.tape import TapeDevice

from unstall.fix.graphs.buckets import Sizes
from unstall.fix.graphs.graphed_stats import GraphedStats


def _rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))


def _elementwise(x: torch.Tensor) -> dict[str, torch.Tensor]:
    y = x.exp().sin() + 1
    return {"rows": y * 2, "first": y[:, 0].cos()}


def test_sizes_are_padded_to_powers_of_two() -> None:
    assert [Sizes().above(size) for size in (1, 2, 3, 4, 5, 8, 9, 1000)] == [1, 2, 4, 4, 8, 8, 16, 1024]


def test_sizes_that_are_given_are_kept_to_and_larger_ones_left() -> None:
    assert [Sizes((6, 12)).above(size) for size in (1, 6, 7, 12, 13)] == [6, 6, 12, 12, 13]


@pytest.mark.parametrize("shapes", ["bucket", [16]])
def test_results_of_every_size_are_those_of_eager(shapes: object) -> None:
    fast = on_tape(_elementwise, shapes=shapes)
    for turn, size in enumerate([12, 9, 10, 11, 9, 13, 15, 16, 14, 10, 9]):
        x = _rows(size, turn)
        torch.testing.assert_close(fast(x), _elementwise(x), rtol=0, atol=0)
    stats = fast.stats()
    assert stats.captures == 1
    assert [graph.shapes for graph in stats.graphs] == [((16, 4),)]
    assert 0 < stats.padding_waste < 0.5


@pytest.mark.parametrize(
    ("shapes", "hits", "captures"), [pytest.param("exact", 50, 41, marks=pytest.mark.slow), ("bucket", 96, 7)]
)
def test_few_graphs_serve_many_sizes(shapes: str, hits: int, captures: int) -> None:
    sizes = torch.randint(1, 65, (120,), generator=torch.Generator().manual_seed(0)).tolist()
    assert len(set(sizes)) == 52
    fast = on_tape(lambda x: (x.exp().sin() + 1) * 2, shapes=shapes)
    for size in sizes:
        fast(_rows(size))
    assert (fast.stats().hits, fast.stats().captures) == (hits, captures)


def test_until_a_bucket_is_proved_stats_say_how_far_it_is() -> None:
    fast = on_tape(_elementwise, shapes="bucket")
    for size in (3, 5, 6):
        fast(_rows(size, size))
    assert "a bucket must give the same bits for 2 sizes, and did so for 2" in fast.stats().text
    for size in (5, 6, 5):
        fast(_rows(size, size))
    assert fast.stats().note == ""
    assert fast.stats().captures == 1


def test_two_inputs_of_one_size_and_another_of_its_own() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (a.exp() + b).sin(), c.exp().sin()

    fast = on_tape(function, shapes="bucket")
    for turn, (size, other) in enumerate([(5, 3), (6, 3), (7, 2), (5, 4), (6, 3), (7, 3), (5, 3)]):
        arguments = _rows(size, turn), _rows(size, turn + 50), _rows(other, turn + 90)
        torch.testing.assert_close(fast(*arguments), function(*arguments), rtol=0, atol=0)
    assert fast.stats().hits > 0


def test_a_function_that_padding_changes_has_a_graph_a_shape() -> None:
    def mean(x: torch.Tensor) -> torch.Tensor:
        return x.exp().mean(0) + 1

    fast = on_tape(mean, shapes="bucket", strict=False)
    said = "padding changes its result|its result has a size"
    sizes = [5, 6, 5, 6, 5, 6, 5, 6]
    with pytest.warns(RuntimeWarning, match=said):
        results = [fast(_rows(size)) for size in sizes]
    assert all(torch.equal(found, mean(_rows(size))) for found, size in zip(results, sizes, strict=True))
    assert sorted(graph.shapes[0][0] for graph in fast.stats().graphs) == [5, 6]


def test_a_function_that_writes_elsewhere_is_not_padded() -> None:
    total = torch.zeros(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        total.add_(x.sum(0))
        return x.exp()

    fast = on_tape(function, shapes="bucket", strict=False)
    with pytest.warns(RuntimeWarning, match="padding would change what it"):  # noqa: PT031
        for size in (5, 6, 5, 6):
            fast(_rows(size))
    expected = 2 * _rows(5).sum(0) + 2 * _rows(6).sum(0)
    torch.testing.assert_close(total, expected)


def test_padding_that_happens_not_to_matter_is_found_out() -> None:
    fast = on_tape(lambda x: x.exp().log().amax(0), shapes="bucket", strict=False)
    with pytest.warns(RuntimeWarning, match="padding changes its result"):  # noqa: PT031
        for turn, size in enumerate([5, 6, 7, 5, 6, 7, 5, 6]):
            x = _rows(size, turn).abs() * (1 if turn < 5 else -1)  # zeros are no maximum until they are
            assert torch.equal(fast(x), x.exp().log().amax(0))


def _of_numbers(function: Callable[[torch.Tensor], torch.Tensor], rounds: int = 12) -> tuple[GraphedStats, list[bool]]:
    """What became of calls with integers of many sizes, none of them below zero at first, and none above it later."""
    fast = on_tape(function, shapes="bucket", strict=False)
    same = []
    for turn in range(rounds):
        numbers = torch.randint(1, 50, (5 + turn % 3,), generator=torch.Generator().manual_seed(turn))
        x = numbers if turn < rounds - 4 else -numbers
        same.append(torch.equal(fast(x), function(x)))
    return fast.stats(), same


def test_the_largest_integer_is_none_of_the_padding() -> None:
    stats, same = _of_numbers(lambda x: x + x.max() * 2)
    assert all(same)
    assert [graph.shapes for graph in stats.graphs] == [((8,),)]


def test_a_mask_is_padded_with_zeros() -> None:
    stats, same = _of_numbers(lambda x: torch.zeros(4, dtype=torch.int64) + (x != 0).sum() * 2 + (x > 0).any())
    assert all(same)
    assert [graph.shapes for graph in stats.graphs] == [((8,),)]


@pytest.mark.filterwarnings("ignore:.*padding changes its result")
@pytest.mark.parametrize("function", [lambda x: x - x.median() * 2, lambda x: (x + 1).sum() * 2 - (x * x).sum()])
def test_what_integers_in_the_padding_change_is_not_padded(function: Any) -> None:
    stats, same = _of_numbers(function, 16)
    assert all(same)
    assert all(graph.shapes != ((8,),) for graph in stats.graphs)


def test_indices_are_padded_with_indices() -> None:
    table = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    stats, same = _of_numbers(lambda x: table[x.abs()].sin().exp())
    assert all(same)
    assert [graph.shapes for graph in stats.graphs] == [((8,),)]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16, torch.complex64, torch.bool])
def test_numbers_of_any_kind_are_served(dtype: torch.dtype) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.complex64).exp().sin().exp()

    fast = on_tape(function, shapes="bucket")
    for size in (5, 6, 7, 5, 6, 7, 5, 6, 7):
        x = torch.arange(size).to(torch.float32).to(dtype)
        assert torch.equal(fast(x), function(x))
    assert fast.stats().hits > 0


def test_sizes_below_those_that_were_tried_are_tried() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * (2 if x.shape[0] < 6 else 3)

    fast = on_tape(function, shapes="bucket", strict=False)
    with pytest.warns(RuntimeWarning, match="padding changes its result"):  # noqa: PT031
        for size in (7, 8, 6, 7, 6, 7, 5, 5, 5, 5):
            assert torch.equal(fast(_rows(size)), function(_rows(size)))


def test_which_of_two_sizes_a_result_has_is_told_before_it_is_cut() -> None:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return b.exp() + a[:1, :1].sum() * 0

    fast = on_tape(function, shapes="bucket")
    for one, other in ((5, 5), (6, 6), (7, 7), (6, 6), (5, 7), (7, 5)):
        assert torch.equal(fast(_rows(one), _rows(other)), function(_rows(one), _rows(other)))


class _SmallDevice(TapeDevice):
    """A device that has room for so many runs."""

    room_for = 1_000

    def capture_stream(self) -> Any:
        self.room_for -= 1
        if self.room_for < 0:
            raise torch.OutOfMemoryError("there is no room for a larger input")
        return super().capture_stream()


def test_a_test_of_padding_that_fails_for_want_of_memory_ends_the_padding_and_not_the_program() -> None:
    device = _SmallDevice()
    fast = on_tape(_elementwise, shapes="bucket", strict=False, device=device)
    fast(_rows(5))
    device.room_for = 1
    with pytest.warns(RuntimeWarning, match="could not be padded: there is no room for a larger input"):
        result = fast(_rows(6))
    assert torch.equal(result["rows"], _elementwise(_rows(6))["rows"])
    device.room_for = 1_000
    for size in (7, 6, 7, 6, 7, 6):
        assert torch.equal(fast(_rows(size))["first"], _elementwise(_rows(size))["first"])
    assert sorted(graph.shapes for graph in fast.stats().graphs) == [((6, 4),), ((7, 4),)]


def test_a_result_that_tells_a_size_is_not_padded() -> None:
    fast = on_tape(lambda x: (x.exp(), len(x)), shapes="bucket", strict=False)
    with pytest.warns(RuntimeWarning, match="its result tells a size as a number"):
        assert [fast(_rows(size))[1] for size in (5, 6, 5, 6, 7)] == [5, 6, 5, 6, 7]


def test_padding_is_refused_where_an_argument_is_returned() -> None:
    fast = on_tape(lambda x: (x, x.exp()), shapes="bucket", strict=False)
    with pytest.warns(RuntimeWarning, match="its result shares memory with an argument"):  # noqa: PT031
        for size in (5, 6, 7, 5, 6, 7, 5, 6, 7):
            x = torch.ones(size, 2)
            assert fast(x)[0] is x


@pytest.mark.filterwarnings("ignore:.*runs as it is")
def test_results_that_are_cut_back_have_eagers_strides() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1

    fast = on_tape(function, shapes="bucket", strict=False)
    for size in (5, 6, 7) * 4:
        x = torch.ones(3, size)
        assert fast(x).stride() == function(x).stride()
    assert fast.stats().padding_waste > 0


def test_what_raises_where_only_some_inputs_grow_has_a_graph_a_shape() -> None:
    """One call whose inputs are broadcast tells which dimensions vary; in the next ones they must be as large."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.exp() - y

    fast = on_tape(function, strict=False, shapes="bucket")

    def calls() -> None:
        for turn, size in enumerate([3, 1, 3, 3, 3, 3]):
            x, y = _rows(size, turn), _rows(3, turn + 50)
            torch.testing.assert_close(fast(x, y), function(x, y), rtol=0, atol=0)

    with pytest.warns(RuntimeWarning, match="padded, it raises"):
        calls()
    assert fast.stats().hits > 0


def test_a_function_that_changes_the_programs_state_is_run_once_a_call() -> None:
    settings = {"calls": 0}

    def function(x: torch.Tensor) -> torch.Tensor:
        settings["calls"] += 1
        return x.exp().sin()

    fast = on_tape(function, strict=False, shapes="bucket")

    def calls() -> None:
        for turn, size in enumerate([5, 6, 7, 5, 6, 7, 5]):
            fast(_rows(size, turn))
            assert settings["calls"] == turn + 1

    with pytest.warns(RuntimeWarning, match="changes the program's own state"):
        calls()
