"""compare_numbers on planted differences, and on ways that are equal."""

from __future__ import annotations

import copy
import json
import linecache
import math
import random
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch
from planted_numbers import CASES, PLANTED, Dropped, DroppedElsewhere, Plain, Reordered, made
from torch import Tensor, nn
from torch.nn import functional

import unstall
from unstall.errors import UsageError
from unstall.rounding.judge import Compared, Pair

Function = Callable[..., Any]


def generated(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def x() -> Tensor:
    return generated(4, 12, 48)


def kind_of(fn: Function, *inputs: object, across: str | Function) -> str:
    (row,) = unstall.compare_numbers(fn, *inputs, across=[across])
    return row.kind


def found_of(fn: Function, *inputs: object, across: str | Function) -> tuple[Compared, Pair]:
    (row,) = unstall.compare_numbers(fn, *inputs, across=[across])
    assert row.found is not None
    assert row.found.first is not None
    return row.found, row.found.first


@pytest.mark.parametrize(("base", "kind", "named"), CASES, ids=[kind.__name__ for _, kind, _ in CASES])
def test_a_planted_difference_is_of_its_class(base: type[Plain], kind: type[Plain], named: str, x: Tensor) -> None:
    (row,) = unstall.compare_numbers(made(base), x, across=[made(kind)])
    assert row.kind == named, row
    assert row.agrees == (named == "rounding")


@pytest.mark.parametrize("kind", [kind for kind, _ in PLANTED])
def test_the_planted_line_is_named(kind: type[Plain], x: Tensor) -> None:
    """It is the line that differs, or that of an operator that only the other way has before that."""
    found, first = found_of(made(Plain), x, across=made(kind))
    seen = [each for each in (first.before, first.after, *found.added) if each is not None]
    lines = {linecache.getline(each.place.file, each.place.line).strip() for each in seen}
    assert any(line.endswith("# planted") for line in lines), lines


def test_one_changed_weight_is_named_with_its_factor(x: Tensor) -> None:
    other = made(Plain)
    with torch.no_grad():
        other.down.weight.mul_(1.001)
    (row,) = unstall.compare_numbers(made(Plain), x, across=[other])
    assert row.kind == "factor"
    assert "1.001" in row.sentence
    _, first = found_of(made(Plain), x, across=other)
    assert (first.seen.kind, first.seen.name) == ("given", "down.weight")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_ways_are_equal(dtype: torch.dtype, x: Tensor) -> None:
    found = unstall.compare_numbers(
        made(Plain).to(dtype), x.to(dtype), across=["repeat", "cpu", "float64", "batch", made(Reordered).to(dtype)]
    )
    assert found.agrees, found
    assert found["repeat"].kind == found["cpu"].kind == "equal"
    assert found["Reordered"].kind == "rounding"


def tail_missing(value: Tensor) -> Tensor:
    result = value * 2
    result[-1] = 0
    return result


class WithoutGradient(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight.detach(), self.bias)


def linear(kind: type[nn.Linear]) -> nn.Linear:
    torch.manual_seed(1)
    return kind(16, 4)


def trained(rate: float) -> Function:
    def step(model: nn.Module, value: Tensor) -> Tensor:
        loss: Tensor = model(value).square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=rate).step()
        return loss.detach()

    return step


def gradients(scale: float) -> Function:
    def step(model: nn.LSTM, value: Tensor) -> list[Tensor]:
        model(value)[0].square().mean().backward()
        return [parameter.grad * scale for parameter in model.parameters() if parameter.grad is not None]

    return step


def lstm() -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(32, 64)


LARGE = torch.cat([torch.tensor([1e6]), generated(63)])
DIFFERENT: dict[str, tuple[Function, tuple[object, ...], Function, str]] = {
    "transposed": (lambda v: v * 2, (generated(8, 16),), lambda v: (v * 2).t(), "shape"),
    "a result is missing": (lambda v: (v * 2, v.sum()), (generated(8),), lambda v: v * 2, "shape"),
    "no gradient": (linear(nn.Linear), (generated(8, 16),), linear(WithoutGradient), "shape"),
    "not a number": (lambda v: v.sqrt(), (generated(8),), lambda v: v.abs().sqrt(), "different"),
    "beside not a number": (
        lambda v: (v / v).acos() + v,
        (generated(64),),
        lambda v: (v / v).acos() + v + 1,
        "different",
    ),
    "a tail": (lambda v: v * 2, (generated(1000, 64),), tail_missing, "different"),
    "an index": (lambda v: v.argmax(1), (generated(8, 16),), lambda v: v.argmax(1) + 1, "different"),
    "small elements": (lambda v: v * 2, (LARGE,), lambda v: torch.cat([v[:1] * 2, v[1:] * 2.02]), "factor"),
    "statistics": (
        nn.BatchNorm1d(16, momentum=0.1),
        (generated(8, 16),),
        nn.BatchNorm1d(16, momentum=0.9),
        "different",
    ),
    "a learning rate": (trained(0.1), (linear(nn.Linear), generated(8, 16)), trained(0.5), "different"),
    "a coarser result": (lambda v: v * 2, (generated(64),), lambda v: (v * 2.0).bfloat16(), "type"),
    "gradients of an LSTM": (gradients(1), (lstm(), generated(100, 16, 32)), gradients(1.0001), "factor"),
    "terms of a long sum": (lambda v: v.sum(), (generated(1 << 20).abs(),), lambda v: v[:-64].sum(), "different"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_is_never_called_rounding(case: str) -> None:
    fn, inputs, other, known = DIFFERENT[case]
    (row,) = unstall.compare_numbers(fn, *inputs, across=[other])
    assert not row.agrees
    assert row.kind == known or known == "different", row


def masked(scale: float, least: float) -> Function:
    def attention(scores: Tensor) -> Tensor:
        mask = 1 - torch.ones(32, 32).bool().tril().to(scores.dtype)
        return (scale * scores + mask * least).softmax(-1)

    return attention


def polar(value: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(value), value).real * 1.001


LEAST = torch.finfo(torch.float32).min
DIFFERENT |= {
    "masked": (masked(1.0, -1e9), (generated(2, 32, 32),), masked(1.01, -1e9), "different"),
    "masked by the least float": (masked(1.0, LEAST), (generated(2, 32, 32),), masked(1.01, LEAST), "different"),
    "by complex numbers": (lambda v: v.cos(), (generated(8, 8),), polar, "different"),
}
BIG = generated(200_000)
BINS = torch.zeros(200_000, dtype=torch.int64)
SAME: dict[str, tuple[Function, tuple[object, ...]]] = {
    "clamp": (lambda v: v.clamp(min=0.1), (generated(64),)),
    "masked_fill": (lambda v: v.masked_fill(v > 0, 0.1), (generated(64),)),
    "where": (lambda v: torch.where(v > 0, v, 0.1), (generated(64),)),
    "full_like": (lambda v: torch.full_like(v, 0.1) + v, (generated(64),)),
    "index_add_": (lambda v, i: torch.zeros(1, dtype=v.dtype).index_add_(0, i, v), (BIG, BINS)),
    "index_put_": (lambda v, i: torch.zeros(1, dtype=v.dtype).index_put_((i,), v, accumulate=True), (BIG, BINS)),
    "batch norm": (nn.BatchNorm1d(4), (torch.rand(50_000, 4) + 10,)),
    "attention": (functional.scaled_dot_product_attention, (generated(1, 1, 16, 8), *[generated(1, 1, 8192, 8)] * 2)),
    "complex": (lambda v, w: torch.view_as_real(torch.view_as_complex(v) * w), (generated(8, 2), generated(8) + 0j)),
    "gelu's tail": (functional.gelu, (-5 - generated(64).abs(),)),
    "drawn": (lambda v: v + torch.randn_like(v), (generated(64),)),
    "a scalar": (lambda v: v.sum(0).softmax(0).cumsum(0), (torch.tensor(1.5),)),
    "its own backward": (trained(0.1), (linear(nn.Linear), generated(8, 16))),
    "a constant of the default type": (lambda v: v @ torch.full((16, 4), 0.3), (generated(8, 16),)),
    "LSTM": (nn.LSTM(16, 8), (generated(5, 2, 16),)),
    "gradients of an LSTM": (gradients(1), (lstm(), generated(100, 16, 32))),
    "in place": (lambda v: v.mul_(3).add_(1), (generated(64),)),
    "empty": (lambda v: v * 2, (torch.zeros(0, 3),)),
    "inference": (torch.inference_mode()(lambda v: v.exp()), (generated(64),)),
    "no data": (lambda v: v, (generated(64),)),
}


@pytest.mark.parametrize("case", SAME)
def test_rounding_is_never_called_a_difference(case: str) -> None:
    fn, inputs = SAME[case]
    found = unstall.compare_numbers(fn, *inputs)
    assert found.agrees, found
    assert found["repeat"].kind == "equal" or case == "index_put_"  # two threads add to its one element, in any order


def test_a_branch_that_rounding_may_take_leaves_only_the_ends_to_compare() -> None:
    def branches(value: Tensor) -> Tensor:
        return value.sin().cos() if bool((value * 3 / 3 - value == 0).float().mean() > 0.5) else value.sin()

    (row,) = unstall.compare_numbers(branches, generated(16), across=["repeat"])
    assert row.found is not None
    assert {pair.seen.kind for pair in row.found.pairs} == {"given", "result", "after"}


def test_random_numbers_are_the_same_in_all_ways_and_told_if_others(x: Tensor) -> None:
    found = unstall.compare_numbers(made(Dropped), x, across=["repeat", "float64", made(DroppedElsewhere)])
    assert [row.kind for row in found] == ["equal", "rounding", "random"]


def test_what_depends_on_more_than_arguments_is_no_rounding() -> None:
    calls = []

    def counts(value: Tensor) -> Tensor:
        calls.append(1)
        return value.exp() * len(calls)

    assert kind_of(counts, generated(8), across="repeat") == "state"


def test_nothing_of_the_users_is_changed(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(48, 48), nn.BatchNorm1d(12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    before, grads = copy.deepcopy(model.state_dict()), [copy.deepcopy(each.grad) for each in model.parameters()]
    torch.manual_seed(8)
    state, python = torch.get_rng_state(), random.getstate()

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, value: Tensor) -> Tensor:
        loss: Tensor = model(value).sum()
        loss.backward()
        optimizer.step()
        return loss.detach() * random.random()

    assert unstall.compare_numbers(step, model, optimizer, x, across=["repeat"])["repeat"].kind == "equal"
    assert torch.equal(state, torch.get_rng_state())
    assert python == random.getstate()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for grad, each in zip(grads, model.parameters(), strict=True):
        assert grad is not None
        assert each.grad is not None
        assert torch.equal(grad, each.grad)


def test_what_arguments_share_is_shared_by_copies() -> None:
    y = torch.zeros(3)

    def adds(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 1

    found = unstall.compare_numbers(adds, y, y, across=[lambda a, b: a.add_(1) * 1])
    assert found.agrees, found
    assert y.sum() == 0


def test_a_function_of_modules_and_tensors(x: Tensor) -> None:
    def loss(models: list[Plain], value: Tensor) -> Tensor:
        result: Tensor = models[0](value)
        return result.square().mean()

    (row,) = unstall.compare_numbers(loss, [made(Plain)], x, across=["float64"])
    assert row.agrees, row
    assert row.found is not None
    assert "up.weight" in {pair.seen.name for pair in row.found.pairs if pair.seen.kind == "gradient"}


def test_its_report_names_the_line_and_its_json_is_plain(x: Tensor) -> None:
    found = unstall.compare_numbers(made(Plain), x, across=["float64", made(PLANTED[1][0])])
    told = str(found)
    assert "self.norm(x + h)" in told
    assert all(len(line) <= 80 for line in told.splitlines())
    ways = json.loads(found.to_json())["ways"]
    assert [each["is"] for each in ways] == ["rounding", "different"]
    assert ways[1]["first"]["name"] == "add"


def test_what_cannot_run_is_a_row_of_its_own() -> None:
    found = unstall.compare_numbers(lambda value: value.sum(), generated(8), across=["batch", "float64"])
    assert [row.kind for row in found] == ["failed", "rounding"]
    assert "no batch dimension" in found["batch"].sentence
    assert not found.agrees


def test_half_batches_of_what_changes_its_arguments_cannot_run() -> None:
    found = unstall.compare_numbers(trained(0.1), linear(nn.Linear), generated(8, 16), across=["batch"])
    assert "changes its arguments" in found["batch"].sentence


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_function_runs_compiled() -> None:
    calls = []

    def backend(module: torch.fx.GraphModule, _: list[Tensor]) -> Function:
        def run(*args: Any) -> Any:
            calls.append(1)
            return tuple(each * 1.5 for each in module.forward(*args))

        return run

    compiled = torch.compile(torch.exp, backend=backend)
    assert kind_of(torch.exp, generated(8), across=compiled) == "factor"
    assert calls
    assert kind_of(functional.dropout, generated(64), across="compiled") == "random"


def test_two_ways_of_one_name_are_numbered() -> None:
    found = unstall.compare_numbers(torch.sin, generated(8), across=["repeat", "repeat"])
    assert [row.way for row in found] == ["repeat", "repeat 2"]


MODEL = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("fn", "across", "inputs", "says"),
    [
        (torch.sin, ["half"], torch.ones(2), "no way of running is called 'half'"),
        (torch.sin, "repeat", torch.ones(2), "a list of ways"),
        (torch.sin, torch.cos, torch.ones(2), "a list of ways"),
        (lambda _: None, ["repeat"], 3, "nothing can be compared"),
        (lambda value: MODEL(value), ["repeat"], torch.ones(2), "uses MODEL"),
    ],
)
def test_what_cannot_be_compared_is_refused(fn: Function, across: Any, inputs: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        unstall.compare_numbers(fn, inputs, across=across)


def test_a_backward_operator_has_the_line_of_its_forward_one() -> None:
    def chain(value: Tensor, weight: Tensor) -> Tensor:
        a = value * weight
        b = a.sin()
        torch.arange(3)
        return b * 2

    def other(value: Tensor, weight: Tensor) -> Any:
        return Wrong.apply(value * weight) * 2  # type: ignore[no-untyped-call]

    inputs = generated(8).requires_grad_(), generated(8).requires_grad_()
    _, first = found_of(chain, *inputs, across=other)
    assert math.isfinite(first.size)
    assert linecache.getline(first.seen.place.file, first.seen.place.line).strip() in (
        "b = a.sin()",
        "a = value * weight",
    )


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        ctx.save_for_backward(value)
        return value.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient * ctx.saved_tensors[0].cos() * 1.01


def test_a_way_that_is_not_possible_leaves_the_others() -> None:
    found = unstall.compare_numbers(torch.sin, torch.ones(1), across=["batch", "float64"])
    assert [row.kind for row in found] == ["failed", "equal"] or found["float64"].agrees
    assert "a batch of one" in found["batch"].sentence


class Called:
    """A callable object that holds a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, x: Tensor) -> Tensor:
        return trained_once(self.model, x)


def trained_once(model: nn.Module, x: Tensor) -> Tensor:
    result = model(x).square().mean()
    result.backward()
    with torch.no_grad():
        for each in model.parameters():
            if each.grad is not None:
                each.sub_(each.grad)
    return torch.as_tensor(result)


@pytest.mark.parametrize(
    "held",
    [
        lambda model: partial(trained_once, model),
        Called,
        lambda model: lambda x, kept=model: trained_once(kept, x),
        lambda model: lambda x, kept=[model]: trained_once(kept[0], x),
    ],
    ids=["partial", "object", "default", "list"],
)
def test_the_users_own_model_is_never_trained(held: Callable[[nn.Module], Function]) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    before = [each.clone() for each in model.parameters()]
    with suppress(UsageError):  # of a model that cannot be copied
        assert unstall.compare_numbers(held(model), torch.ones(2, 4), across=["repeat"])["repeat"].kind == "equal"
    assert all(map(torch.equal, model.parameters(), before))
    assert all(each.grad is None for each in model.parameters())


def test_a_tensor_from_outside_is_never_changed() -> None:
    count = torch.zeros(1)

    def counts(x: Tensor) -> Tensor:
        count.add_(1)
        return x * 2

    with pytest.raises(UsageError, match="not among its arguments"):
        unstall.compare_numbers(counts, torch.ones(2))
    assert count.item() == 0


def test_a_generator_and_an_optimizer_must_be_arguments() -> None:
    chance = torch.Generator().manual_seed(1)
    with pytest.raises(UsageError, match="chance, which has a state"):
        unstall.compare_numbers(lambda x: x + torch.rand(2, generator=chance), torch.ones(2))
    found = unstall.compare_numbers(lambda x, g: x + torch.rand(2, generator=g), torch.ones(2), chance)
    assert found["repeat"].kind == "equal"


def test_numbers_of_python_are_results() -> None:
    def other(x: Tensor) -> dict[str, float]:
        return {"sum": x.sum().item() * 1.01}

    def own(x: Tensor) -> dict[str, float]:
        return {"sum": x.sum().item()}

    x = torch.rand(100)
    assert unstall.compare_numbers(own, x, across=[other])["other"].kind in ("different", "factor")
    assert unstall.compare_numbers(own, x, across=["float64"]).agrees
    assert "no batch dimension" in unstall.compare_numbers(own, x, across=["batch"])["batch"].sentence


def test_results_of_the_same_bits_are_equal_whatever_is_on_the_way() -> None:
    def hidden(least: float) -> Function:
        mask = torch.ones(32, 32).bool().triu(1)
        return lambda scores: scores.masked_fill(mask, least).softmax(-1)

    row = unstall.compare_numbers(hidden(-math.inf), generated(32, 32), across=[hidden(-1e4)]).rows[0]
    assert row.kind == "equal"
    assert "On the way, masked_fill" in row.sentence


@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 200.0), (torch.float16, 1500.0)])
def test_large_values_of_half_types_round_too(dtype: torch.dtype, size: float) -> None:
    x = (generated(64, 64) + size).to(dtype)

    def in_halves(v: Tensor) -> Tensor:
        return v - (v[:, :32].mean(-1, keepdim=True) + v[:, 32:].mean(-1, keepdim=True)) / 2

    assert unstall.compare_numbers(lambda v: v - v.mean(-1, keepdim=True), x, across=[in_halves]).agrees


def test_operators_with_unusual_tensors_are_passed_over() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.device("meta"):
            nn.Linear(4, 4)
        nested = torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged)
        dense = nested.to_padded_tensor(0.0)
        sparse = torch.sparse.mm(x.to_sparse(), x)
        complex_one = torch.complex(x, x)
        total: Tensor = dense.sum() + sparse.sum() + torch.view_as_real(complex_one.mH @ complex_one).sum()
        return total

    assert unstall.compare_numbers(fn, generated(4, 4)).agrees


def test_a_difference_far_beyond_rounding_is_a_figure_that_can_be_read() -> None:
    found = unstall.compare_numbers(lambda x: x * 2, generated(16), across=[lambda x: x * 3])
    assert re.search(r"different +>10,000 |factor +>10,000 ", str(found))
