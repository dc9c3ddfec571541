"""`compare` measures what rounding explains, and leaves the program's tensors as they are."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import unstall
from unstall.measuring.adapters import copied
from unstall.measuring.calls.function_call import FunctionCall
from unstall.measuring.compare import same_randomness
from unstall.measuring.comparing.agreement import NoNoise, agreement
from unstall.measuring.comparing.noisy_calls import NoisyCalls


def noisy_calls(fn: Callable[..., object], *args: object, seconds: float = 60.0) -> NoisyCalls:
    call = FunctionCall(fn, args)
    with same_randomness():
        usual = copied(fn(*copied(args)))
    return NoisyCalls(call, copied, same_randomness, lambda result: agreement(result, usual, ulp=0).agrees, seconds)


def by_hand(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(16, 50, generator=torch.Generator().manual_seed(1))


def said(functions: dict[str, Callable[..., Any]], *args: object, **options: Any) -> str:
    agreed = unstall.compare(functions, *args, **options).candidates[1].agreement
    assert agreed is not None
    return str(agreed.text)


def test_a_difference_within_rounding_is_said_with_its_share_of_the_limit(x: Tensor) -> None:
    assert " apart, within rounding (" in said({"a": softmax, "b": by_hand}, x)


def test_a_difference_beyond_rounding_is_said_with_how_often(x: Tensor) -> None:
    text = said({"a": softmax, "b": lambda x: by_hand(x) * (1 + 5e-6)}, x)  # an assumed tolerance would let it pass
    assert text.startswith("result is off by ")
    assert text.endswith(" times as much as rounding explains")


def test_a_tolerance_of_the_user_counts_alone(x: Tensor) -> None:
    assert "rounding" not in said({"a": softmax, "b": by_hand}, x, ulp=100)


def test_random_numbers_are_the_same_in_all_runs_and_go_on_as_before(x: Tensor) -> None:
    def dropped(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5).exp()

    torch.manual_seed(4)
    noisy = noisy_calls(dropped, x)
    state = torch.get_rng_state()
    results = [noisy(number) for number in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    expected = dropped(x)
    assert all(agreement(each, expected, rel_tolerance=1e-5).agrees for each in results)


def test_arguments_may_be_written_since_they_are_copies(x: Tensor) -> None:
    before = x.clone()
    result = noisy_calls(lambda x: x.mul_(1.1).exp_(), x)(0)
    assert torch.equal(x, before)
    assert not agreement(result, (x * 1.1).exp(), ulp=0).agrees


def stepping() -> Callable[[Tensor], Tensor]:
    model = torch.nn.Linear(50, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return torch.as_tensor(loss)

    return step


def leaving_gradients() -> Callable[[Tensor], Tensor]:
    weight = torch.ones(50, requires_grad=True)

    def backward(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (x * weight).exp().sum()
        loss.backward()
        return loss

    return backward


def normalising() -> Callable[[Tensor], Tensor]:
    return torch.nn.BatchNorm1d(50)


def keeping() -> Callable[[Tensor], Tensor]:
    kept: dict[str, Tensor] = {}

    def function(x: Tensor) -> Tensor:
        kept["last"] = x.exp()
        return kept["last"] * 2

    return function


def averaging() -> Callable[[Tensor], Tensor]:
    state = {"mean": 0.0}

    def function(x: Tensor) -> Tensor:
        state["mean"] = x.exp().mean().item()
        return x * 2

    return function


def filling() -> Callable[[Tensor], Tensor]:
    out = torch.empty(16, 50)
    return lambda x: torch.exp(x, out=out)


def counting() -> Callable[[Tensor], Tensor]:
    numbers: Iterator[int] = iter(range(1000))
    return lambda x: x.exp() * next(numbers)


def drawing() -> Callable[[Tensor], Tensor]:
    chance = torch.Generator()
    return lambda x: x + torch.rand(50, generator=chance)


def failing() -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
            raise ValueError
        return x.exp()

    return function


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (stepping, "writes to tensors"),
        (leaving_gradients, "keeps tensors"),
        (normalising, "writes to tensors"),
        (keeping, "keeps tensors"),
        (averaging, "reads numbers"),
        (filling, "writes to tensors"),
        (counting, "not give the same result"),
        (drawing, "random generator of its own"),
        (failing, "raises ValueError"),
    ],
)
def test_what_errors_could_stay_in_gets_none(made: Callable[[], Callable[..., object]], why: str, x: Tensor) -> None:
    noisy = noisy_calls(made(), x)
    for number in range(2):
        with pytest.raises(NoNoise, match=why):
            noisy(number)


def test_a_step_of_training_keeps_its_exact_weights(x: Tensor) -> None:
    def stepped(calls: int) -> Tensor:
        torch.manual_seed(0)
        model = torch.nn.Linear(50, 4)

        def step(x: Tensor) -> Tensor:
            with torch.no_grad():
                model.weight.mul_(-1.0)  # twice is as before, bit for bit
            return torch.as_tensor(model(x).abs().sum())

        noisy = noisy_calls(step, x)
        for _ in range(calls):
            with pytest.raises(NoNoise):
                noisy(0)
        return torch.as_tensor(model.weight.detach().abs())

    assert torch.equal(stepped(3), stepped(0))


def test_a_write_that_only_errors_lead_to_is_prevented(x: Tensor) -> None:
    state = torch.zeros(1)
    usual = x.exp()

    def function(x: Tensor) -> Tensor:
        result = x.exp()
        if bool((result != usual).any()):
            state.add_(1)
        return result

    with pytest.raises(NoNoise, match="writes to tensors"):
        noisy_calls(function, x)(0)
    assert state.item() == 0


def test_calls_that_take_too_long_are_not_made_eight_times(x: Tensor) -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        calls.append(random.random)
        return x.exp()

    noisy = noisy_calls(function, x, seconds=0.0)
    with pytest.raises(NoNoise, match="too long"):
        noisy(0)
    assert len(calls) == 2


def test_without_measured_rounding_the_text_says_what_was_assumed(x: Tensor) -> None:
    kept: list[Tensor] = []
    weight = torch.ones(50)  # of float32, so there is no float64 result

    def function(x: Tensor) -> Tensor:
        kept[:] = [(x @ weight.diag()).softmax(-1)]
        return kept[0]

    text = said({"a": function, "b": by_hand}, x)
    assert "within an assumed tolerance of 6e-06 (rounding was not measured: the first function keeps tensors" in text
