"""Arguments that are changed, shared or odd, and results of any make, are as they are in eager."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from fix.graphed.harness import grad_of, on_tape

from unstall.errors import GraphedError


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass
class Batch:
    x: torch.Tensor


def test_arguments_by_name_keep_their_order() -> None:
    def function(**parts: torch.Tensor) -> torch.Tensor:
        return sum(((place + 1) * part.exp() for place, part in enumerate(parts.values())), torch.zeros(2))

    fast = on_tape(function)
    for _ in range(4):
        for parts in ({"a": torch.ones(2), "b": torch.zeros(2)}, {"b": torch.zeros(2), "a": torch.ones(2)}):
            assert torch.equal(fast(**parts), function(**parts))


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), ({1: 2}, {True: 2}), (1, 1.0)])
def test_values_that_are_equal_and_not_the_same_have_graphs_of_their_own(one: Any, other: Any) -> None:
    fast = on_tape(lambda x, value: (x.exp(), repr(value)))
    for value in (one, other) * 4:
        assert fast(torch.ones(2), value)[1] == repr(value)


def test_what_a_container_holds_beside_its_items_counts() -> None:
    fast = on_tape(lambda batch: batch.x.exp() * batch.scale)
    for scale in (1.0, 2.0) * 4:
        batch: Any = Batch(torch.ones(2))
        batch.scale = scale
        assert torch.equal(fast(batch), torch.ones(2).exp() * scale)


def appends(x: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    kept.append(1)
    return x.exp()


def turns(x: torch.Tensor, kept: list[Any]) -> torch.Tensor:
    x.t_()
    return x.exp()


@pytest.mark.parametrize("function", [appends, turns])
def test_a_container_or_shape_that_is_changed_stays_changed(function: Any) -> None:
    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="it changes a container or a shape that was passed in"):  # noqa: PT031
        for _ in range(5):
            mine: tuple[torch.Tensor, list[Any]] = (_numbers(2, 3), [])
            theirs: tuple[torch.Tensor, list[Any]] = (_numbers(2, 3), [])
            function(*mine)
            fast(*theirs)
            assert (mine[0].shape, mine[1]) == (theirs[0].shape, theirs[1])


def test_other_memory_for_a_tensor_is_refused_and_given_once_a_call() -> None:
    weight = torch.nn.Parameter(torch.full((4,), 16.0))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.data = weight.data / 2
        return (x * weight.data).exp()

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="in other memory"):  # noqa: PT031
        for _ in range(5):
            fast(torch.zeros(4))
    assert weight[0].item() == 0.5


def test_a_gradient_that_is_left_in_an_argument_is_there() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        loss = x.exp().sum()
        loss.backward()
        return loss.detach()

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="it leaves a gradient in an argument"):  # noqa: PT031
        for _ in range(5):
            x = torch.ones(2, requires_grad=True)
            fast(x)
            assert torch.equal(grad_of(x), x.detach().exp())


@pytest.mark.parametrize("shared", [True, False])
def test_an_argument_that_later_shares_memory_with_what_is_written_is_eagers(shared: bool) -> None:
    def run(make: Any) -> list[torch.Tensor]:
        state = _numbers(4, seed=9)

        def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            a.mul_(2)
            state.add_(b)
            return (a + b + state).exp()

        call = make(function)
        found = []
        for seed in range(8):
            a, b = _numbers(4, seed=seed), _numbers(4, seed=seed + 50)
            if seed > 4:
                b = a if shared else state
            found += [call(a, b), a.clone(), state.clone()]
        return found

    assert all(map(torch.equal, run(lambda function: function), run(on_tape)))


def test_what_is_written_into_an_expanded_argument_is_in_its_memory() -> None:
    """torch writes into no tensor that has an element twice, but a part of one that has not is written to as ever."""
    row, weight = torch.zeros(4), torch.randn(4, 4)

    def scale(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[0] = y.sum(0)
        return y @ weight @ weight

    step = on_tape(scale)
    for number in range(6):
        y = torch.full((2, 4), float(number))
        step(row.expand(2, 4), y)
        assert row.tolist() == [2.0 * number] * 4
    assert step.stats().hits == 4


def test_an_argument_that_is_also_read_beside_is_refused_by_name() -> None:
    state = torch.ones(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        state.add_(x)
        return (x + state).exp()

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="an argument shares memory with state"):  # noqa: PT031
        for call in range(5):
            fast(state)
            assert state[0].item() == 2.0 ** (call + 1)


def test_containers_of_a_result_are_new_ones() -> None:
    known = {"name": "kept"}
    fast = on_tape(lambda x: {"y": x.exp(), "seen": [], "known": known})
    for _ in range(5):
        found = fast(torch.ones(2))
        assert found["seen"] == []
        assert found["known"] is known
        found["seen"].append(1)


def test_a_result_that_may_hide_tensors_is_refused_by_name() -> None:
    class Out:
        def __init__(self, y: torch.Tensor) -> None:
            self.y = y

    fast = on_tape(lambda x: Out(x.exp()), strict=False)
    with pytest.warns(RuntimeWarning, match="its result holds a Out"):
        found = [fast(torch.full((2,), float(call))).y for call in range(5)]
    assert all(torch.equal(y, torch.full((2,), float(call)).exp()) for call, y in enumerate(found))


def test_views_of_another_dtype_or_conjugated_are_those_of_eager() -> None:
    def function(x: torch.Tensor) -> Any:
        z = torch.view_as_complex(x.exp().reshape(-1, 2))
        return z, z.conj(), z.conj().imag, torch.view_as_real(z)[1:], x.exp().view(torch.int32)

    fast = on_tape(function)
    for seed in range(5):
        x = _numbers(8, seed=seed)
        torch.testing.assert_close(fast(x), function(x), rtol=0, atol=0)
    assert fast.stats().hits == 3


def test_a_call_from_a_thread_that_the_function_waits_for_does_not_hang() -> None:
    held: dict[str, Any] = {}

    def function(x: torch.Tensor, deep: bool) -> torch.Tensor:
        if deep:
            thread = threading.Thread(target=lambda: held.update(y=held["fast"](x, False)), daemon=True)
            thread.start()
            thread.join(5)
            assert not thread.is_alive()
        return x.exp()

    held["fast"] = on_tape(function, strict=False)
    held["fast"](torch.ones(2), True)
    assert torch.equal(held["y"], torch.ones(2).exp())


def test_in_inference_mode_running_statistics_are_followed() -> None:
    norms = [torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)]
    fast = on_tape(norms[1])
    with torch.inference_mode():
        for seed in range(6):
            x = _numbers(6, 4, seed=seed)
            assert torch.equal(norms[0](x), fast(x))
    assert torch.equal(norms[0].get_buffer("running_var"), norms[1].get_buffer("running_var"))


@pytest.mark.parametrize("read_as", [torch.conj, torch.Tensor.adjoint, torch._neg_view, torch.t])
@pytest.mark.parametrize("given_as", [torch.clone, torch.conj, torch._neg_view])
def test_an_argument_that_is_returned_as_its_conjugate_or_negative_is_that(read_as: Any, given_as: Any) -> None:
    fast = on_tape(lambda x: (x.exp(), read_as(x)))
    for seed in range(5):
        x = given_as(torch.complex(_numbers(3, 4, seed=seed), _numbers(3, 4, seed=seed + 9)))
        found, expected = fast(x)[1], read_as(x)
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()
    assert fast.stats().hits == 3


@pytest.mark.parametrize("read_as", [torch.view_as_real, torch.imag, lambda x: x.view(torch.int64)])
def test_an_argument_that_is_returned_as_another_type_is_refused_by_name(read_as: Any) -> None:
    fast = on_tape(lambda x: (x.exp(), read_as(x)))
    fast(torch.complex(_numbers(3, 4), _numbers(3, 4)))
    with pytest.raises(GraphedError, match="an argument's memory read as another type"):
        fast(torch.complex(_numbers(3, 4), _numbers(3, 4)))


def _view_that_autograd_refuses_to_speak_about() -> torch.Tensor:
    base, weight = torch.ones(4), torch.full((4,), 2.0, requires_grad=True)
    with torch.no_grad():
        view = base.view(2, 2)
    base.mul_(weight)
    with pytest.raises(RuntimeError):
        _ = view.is_leaf
    return view


def test_views_that_autograd_refuses_to_speak_about() -> None:
    """As an argument, and as state: whether one is a leaf cannot be asked."""
    argument, kept = _view_that_autograd_refuses_to_speak_about(), _view_that_autograd_refuses_to_speak_about()
    fast = on_tape(lambda x: x.detach().exp() + kept.detach())
    for _ in range(4):
        assert torch.equal(fast(argument), argument.detach().exp() + kept.detach())
