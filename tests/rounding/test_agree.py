"""Rounding explains what it can explain, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from unstall.rounding.agree import Explained, explain, noise

Function = Callable[..., Tensor]


def explained(one: Function, other: Function, *given: Tensor) -> Explained:
    """Whether rounding explains how two functions differ."""

    def again(number: int) -> list[Tensor]:
        with noise(number):
            return [one(*given)]

    return explain([one(*given)], [other(*given)], again)


def never(_: int) -> list[Tensor]:
    raise AssertionError("nothing needs to run again")


def by_hand(x: Tensor) -> Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


@pytest.fixture
def x() -> Tensor:
    return torch.randn(64, 100, generator=torch.Generator().manual_seed(1))


def test_equal_tensors_need_no_further_run() -> None:
    one = torch.tensor([1.0, float("nan")])
    assert explain([one], [one.clone()], never) == Explained(True)


def test_rounding_explains_the_same_formula_computed_otherwise(x: Tensor) -> None:
    found = explained(lambda x: x.softmax(-1), by_hand, x)
    assert found.agrees
    assert found.measured
    assert 0 < found.share < 1


def test_rounding_does_not_explain_another_formula(x: Tensor) -> None:
    found = explained(lambda x: x.softmax(-1), lambda x: by_hand(x) * (1 + 1e-4), x)
    assert not found.agrees
    assert found.first == 0
    assert found.share > 10


@pytest.mark.parametrize("elements", [100, 1 << 18])
def test_one_wrong_element_is_found_in_a_tensor_of_any_size(elements: int) -> None:
    x = torch.rand(elements, generator=torch.Generator().manual_seed(1)) + 1

    def other(x: Tensor) -> Tensor:
        result = x.exp()
        result[77] *= 1 + 1e-4
        return result

    found = explained(torch.exp, other, x)
    assert not found.agrees
    assert found.difference == pytest.approx(1e-4 * float(x[77].exp()), rel=0.01)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2).to_sparse(), torch.ones(3).to_sparse()),
    ],
)
def test_what_has_no_rounding_agrees_only_if_it_is_equal(one: Tensor, other: Tensor) -> None:
    found = explain([torch.zeros(1), one], [torch.zeros(1), other], never)
    assert (found.agrees, found.first) == (False, 1)


def test_another_number_of_tensors_is_another_result() -> None:
    assert not explain([torch.ones(1)], [], never).agrees


def test_the_first_tensor_that_does_not_agree_is_named(x: Tensor) -> None:
    def again(number: int) -> list[Tensor]:
        with noise(number):
            return [x.softmax(-1), x * 3, x * 4]

    found = explain([x.softmax(-1), x * 3, x * 4], [by_hand(x), x * 3.01, x * 4.5], again)
    assert (found.agrees, found.first) == (False, 1)


def test_a_value_that_is_finite_in_one_result_only_is_not_explained(x: Tensor) -> None:
    def other(x: Tensor) -> Tensor:
        result = x.exp()
        result[3, 3] = float("inf")
        return result

    assert not explained(torch.exp, other, x).agrees


def test_rounding_that_no_operator_shows_is_not_called_measured() -> None:
    one = torch.rand(100) + 1
    found = explain([one], [torch.nextafter(one, one + 1)], lambda _: [one])
    assert found.agrees
    assert not found.measured


def test_runs_whose_order_varies_say_how_much_it_does() -> None:
    chance = torch.Generator().manual_seed(3)
    x = torch.cat([sign * (torch.rand(4000, generator=chance) + 1e4) for sign in (1, -1)])

    def total(_: int = 0) -> list[Tensor]:
        result = torch.zeros(())
        for part in x[torch.randperm(len(x), generator=chance)].split(1000):
            result = result + part.sum()
        return [result]

    assert explain(total(), total(), total).agrees
    assert not explain(total(), [total()[0] + 1e3], total).agrees
