"""compare_numbers on planted differences, and on ways that are equal."""

from __future__ import annotations

import copy
import json
import linecache
import math

import pytest
import torch
from planted_numbers import PLANTED, Dropped, DroppedElsewhere, Plain, Reordered, made
from torch import Tensor

import unstall
from unstall.errors import UsageError


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.randn(4, 12, 48, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("kind", "named"), PLANTED, ids=[kind.__name__ for kind, _ in PLANTED])
def test_a_planted_difference_is_beyond_rounding(kind: type[Plain], named: str, x: Tensor) -> None:
    row = unstall.compare_numbers(made(Plain), x, across=[made(kind)])[kind.__name__]
    assert not row.agrees
    assert row.found.first is not None
    assert row.kind == named, row


@pytest.mark.parametrize("kind", [kind for kind, _ in PLANTED])
def test_the_planted_line_is_named(kind: type[Plain], x: Tensor) -> None:
    """It is the line that differs, or that of an operator that only the other way has before that."""
    found = unstall.compare_numbers(made(Plain), x, across=[made(kind)])[kind.__name__].found
    assert found.first is not None
    lines = {
        linecache.getline(each.place.file, each.place.line).strip()
        for each in (found.first.before, found.first.after, *found.added)
    }
    assert any(line.endswith("# planted") for line in lines), lines


def test_one_changed_weight_is_named_with_its_factor(x: Tensor) -> None:
    other = made(Plain)
    with torch.no_grad():
        other.down.weight.mul_(1.001)
    row = unstall.compare_numbers(made(Plain), x, across=[other])["Plain"]
    assert row.kind == "factor"
    assert "1.001" in row.sentence
    assert row.found.first is not None
    assert (row.found.first.before.kind, row.found.first.before.name) == ("given", "down.weight")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_ways_are_equal(dtype: torch.dtype, x: Tensor) -> None:
    found = unstall.compare_numbers(
        made(Plain).to(dtype), x.to(dtype), across=["repeat", "cpu", "float64", "batch", made(Reordered).to(dtype)]
    )
    assert found.agrees, found
    assert found["repeat"].kind == found["cpu"].kind == "equal"
    assert found["Reordered"].kind == "rounding"


def test_random_numbers_are_the_same_in_all_ways_and_told_if_others(x: Tensor) -> None:
    found = unstall.compare_numbers(made(Dropped), x, across=["repeat", "float64", made(DroppedElsewhere)])
    assert found["repeat"].kind == "equal"
    assert found["DroppedElsewhere"].kind == "random"


def test_nothing_of_the_users_is_changed(x: Tensor) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(48, 48), torch.nn.BatchNorm1d(12))
    model(x).sum().backward()
    before, grads = copy.deepcopy(model.state_dict()), [each.grad.clone() for each in model.parameters()]  # type: ignore[union-attr]
    torch.manual_seed(8)
    state = torch.get_rng_state()
    unstall.compare_numbers(model, x)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(torch.equal(grad, each.grad) for grad, each in zip(grads, model.parameters(), strict=True))  # type: ignore[arg-type]


def test_a_function_of_modules_and_tensors(x: Tensor) -> None:
    def loss(model: Plain, value: Tensor) -> Tensor:
        result: Tensor = model(value)
        return result.square().mean()

    found = unstall.compare_numbers(loss, made(Plain), x)
    assert found.agrees, found
    names = {pair.before.name for pair in found["float64"].found.pairs if pair.before.kind == "gradient"}
    assert "up.weight" in names


def test_not_a_number_is_a_difference_unless_both_are(x: Tensor) -> None:
    def root(value: Tensor) -> Tensor:
        return value.sqrt()

    def absolute(value: Tensor) -> Tensor:
        return value.abs().sqrt()

    found = unstall.compare_numbers(root, x, across=["repeat", "float64", absolute])
    assert found["repeat"].kind == "equal"
    assert found["float64"].agrees
    first = found["absolute"].found.first
    assert first is not None
    assert math.isinf(first.difference) or first.difference > 0


def test_its_report_names_the_line_and_its_json_is_plain(x: Tensor) -> None:
    found = unstall.compare_numbers(made(Plain), x, across=["float64", made(PLANTED[1][0])])
    told = str(found)
    assert "self.norm(x + h)" in told
    assert all(len(line) <= 80 for line in told.splitlines())
    ways = json.loads(found.to_json())["ways"]
    assert [each["is"] for each in ways] == ["rounding", "different"]
    assert ways[1]["first"]["name"] == "add"


@pytest.mark.parametrize(
    ("across", "inputs", "says"),
    [
        (["half"], torch.ones(2), "no way of running is called 'half'"),
        ("repeat", torch.ones(2), "a sequence"),
        (["batch"], torch.ones(1), "a batch of one"),
        (["repeat"], torch.arange(3), "returns no tensor of floating point numbers"),
    ],
)
def test_what_cannot_be_compared_is_refused(across: list[str], inputs: Tensor, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        unstall.compare_numbers(lambda value: value * 2, inputs, across=across)
