"""What autograd knows of a graph's results, and notices before their backward, is as it is in eager."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fix.graphed.harness import batches, grad_of, mlp, on_tape

from unstall.fix.graphs.autograd import stream_warnings
from unstall.fix.graphs.static_inputs import Clones


def _both(function: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    return function, on_tape(function, **options)


def test_strides_of_results_with_gaps_and_overlaps_are_those_of_eager() -> None:
    plain, fast = _both(lambda x: (x.exp()[:, :2], x.sum(0).expand(3, 4), x.exp().t()[1:]))
    for x, _ in batches(4):
        for mine, theirs in zip(plain(x), fast(x), strict=True):
            assert theirs.stride() == mine.stride()
            assert torch.equal(theirs, mine)
    assert fast.stats().hits == 2


def test_a_parameter_that_a_step_returns_stays_itself() -> None:
    model = mlp()

    def step(x: torch.Tensor) -> Any:
        loss = model(x).square().sum()
        loss.backward()
        return model[0].weight, loss

    fast = on_tape(step)
    for x, _ in batches(5):
        model.zero_grad(set_to_none=False)
        assert fast(x)[0] is model[0].weight


def test_a_tensor_of_inference_mode_is_one() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return x.exp() * 2

    fast = on_tape(function)
    assert [fast(x).is_inference() for x, _ in batches(4)] == [True] * 4


def test_autograd_that_the_function_turns_on_itself_is_on() -> None:
    weight = torch.full((4,), 2.0, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            return (x * weight).exp()

    fast = on_tape(function)
    for x, _ in batches(5):
        with torch.no_grad():
            mine, theirs = function(x), fast(x)
        expected = torch.autograd.grad(mine.sum(), weight)
        assert torch.equal(torch.autograd.grad(theirs.sum(), weight)[0], expected[0])
    assert fast.stats().hits == 3


def test_under_autocast_gradients_of_a_weight_that_is_used_often_are_eagers() -> None:
    layer = torch.nn.Linear(4, 4)
    plain, fast = _both(lambda x: layer(layer(layer(x))))
    for x, _ in batches(5):
        grads = []
        for call in (plain, fast):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                result = call(x)
            result.float().sum().backward()
            grads.append(grad_of(layer.weight))
            layer.zero_grad()
        assert torch.equal(*grads)
    assert fast.stats().hits == 3


def test_a_second_backward_runs_under_the_calls_autocast() -> None:
    layer = torch.nn.Linear(4, 4)
    plain, fast = _both(lambda x: layer(x).tanh())
    for x, _ in batches(5):
        grads = []
        for call in (plain, fast):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                result = call(x).float().sum()
            result.backward(retain_graph=True)
            result.backward()
            grads.append(grad_of(layer.weight))
            layer.zero_grad()
        assert torch.equal(*grads)


@pytest.mark.parametrize("again", [False, True])
def test_a_second_backward_that_eager_refuses_is_refused(again: bool) -> None:
    fast = on_tape(mlp() if again else torch.nn.Linear(4, 4))
    for x, _ in batches(5):
        result = fast(x).square().sum() if again else fast(x).sum()
        result.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            result.backward()
        del result
    assert fast.stats().hits == 3


def _weight_in_place(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    with torch.no_grad():
        weight.mul_(2)


def _argument_in_place(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    x.detach().mul_(2)


def _result_in_place(weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    y.detach().mul_(2)


@pytest.mark.parametrize("change", [_weight_in_place, _argument_in_place, _result_in_place])
def test_what_is_written_before_the_backward_is_noticed_as_in_eager(change: Any) -> None:
    weight = torch.full((4,), 0.5, requires_grad=True)
    plain, fast = _both(lambda x: (x * weight).tanh())
    for call in (plain, *[fast] * 5):
        x = torch.ones(4, requires_grad=True)
        y = call(x)
        change(weight, x, y)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            y.sum().backward()
        del y  # whose backward may come no more
    assert fast.stats().hits == 3


def test_what_the_backward_does_not_need_may_be_written() -> None:
    shift = torch.ones(4, requires_grad=True)
    plain, fast = _both(lambda x: x.sin() + shift)
    for call in (plain, *[fast] * 5):
        y = call(torch.ones(4))
        with torch.no_grad():
            shift.mul_(2)
        y.sum().backward()
    assert torch.equal(grad_of(shift), torch.full((4,), 6.0))
    assert fast.stats().hits == 3


def test_other_memory_for_a_weight_before_the_backward_is_an_error_by_name() -> None:
    weight = torch.full((4,), 0.5, requires_grad=True)
    fast = on_tape(lambda x: (x * weight).tanh())
    for _ in range(4):
        torch.autograd.grad(fast(torch.ones(4, requires_grad=True)).sum(), weight)
    y = fast(torch.ones(4, requires_grad=True))
    weight.data = torch.ones(4)
    with pytest.raises(RuntimeError, match=r"given other memory since the call, as by `\.data =`"):
        y.sum().backward()


def test_what_a_graph_writes_is_noticed_by_backwards_of_the_programs_own() -> None:
    state = torch.ones(4)
    weight = torch.ones(4, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        state.add_(x)
        return x.exp()

    fast = on_tape(function)
    for _ in range(5):
        y = (weight * state).sum()
        fast(torch.ones(4))
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            y.backward()
    assert fast.stats().hits == 3


def test_what_no_result_depends_on_gets_no_backward() -> None:
    weight = torch.ones(4, requires_grad=True)
    outside = weight.exp()  # whose own graph a first backward would use up

    def function(x: torch.Tensor) -> torch.Tensor:
        _ = x * outside
        return x.sin()

    fast = on_tape(function)
    for _ in range(5):
        x = torch.ones(4, requires_grad=True)
        fast(x).sum().backward()
        assert torch.equal(grad_of(x), torch.ones(4).cos())
    assert weight.grad is None
    assert fast.stats().hits == 3


def test_a_weight_that_is_a_result_itself_gets_its_gradients_before_another_backward_fails() -> None:
    """As in eager: where autograd raises, it has already come to what needs nothing of the function."""

    def gradients(*, graphs: bool) -> list[list[float]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)

        def plain(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return model.bias, x @ model.weight @ model.weight

        function = on_tape(plain, strict=False) if graphs else plain
        results: list[torch.Tensor] = []
        found = []
        for x, _ in batches(5):
            results += function(x)
            loss = torch.stack([each.square().sum() for each in results]).sum()
            with nullcontext() if len(results) == 2 else pytest.raises(RuntimeError, match="a second time"):
                loss.backward()
            assert model.bias.grad is not None
            found.append(model.bias.grad.tolist())
        return found

    assert gradients(graphs=True) == gradients(graphs=False)


@pytest.mark.parametrize(
    "function", [lambda x: x.exp()[1:].chunk(2), lambda x: (x[1:], x.exp()), lambda x: (x.exp(), x.detach())]
)
def test_differentiable_views_stay_views_or_are_refused_by_name(function: Any) -> None:
    fast = on_tape(function, strict=False)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        for _ in range(5):
            x = torch.ones(5, requires_grad=True)
            mine, theirs = function(x), fast(x)
            shared = [len({each.untyped_storage().data_ptr() for each in (x, *found)}) for found in (mine, theirs)]
            assert shared[0] == shared[1]


def test_a_loss_and_its_detached_self_are_one_memory() -> None:
    weight = torch.ones(4, requires_grad=True)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = (x * weight).exp()
        return loss, loss.detach()

    fast = on_tape(function)
    for _ in range(5):
        loss, detached = fast(torch.ones(4))
        assert loss.data_ptr() == detached.data_ptr()
        assert (loss.requires_grad, detached.requires_grad) == (True, False)
        del loss
    assert fast.stats().hits == 3


def test_a_generator_that_was_replaced_is_not_drawn_from_in_vain() -> None:
    held = {"generator": torch.Generator()}
    first = held["generator"]
    fast = on_tape(lambda x: x + torch.randn(4, generator=held["generator"]))
    for _ in range(5):
        fast(torch.ones(4))
    before = first.get_state()
    held["generator"] = torch.Generator()
    fast(torch.ones(4))
    assert torch.equal(first.get_state(), before)


def test_a_warning_is_said_as_often_as_in_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("said by the program", UserWarning, stacklevel=1)
        return x.exp()

    for filtering, times in (("always", 6), ("default", 1)):
        fast = on_tape(function, strict=False)
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(filtering)  # type: ignore[arg-type]
            for x, _ in batches(6):
                fast(x)
        assert sum(each.category is UserWarning for each in caught) == times
        assert (fast.stats().hits > 0) == (filtering == "default")


def test_a_warning_of_each_line_once_is_none_of_each_call() -> None:
    """Libraries make Python forget what it has shown: then eager calls show it again by chance."""

    def function(x: torch.Tensor) -> torch.Tensor:
        warnings.simplefilter("default", append=True)  # forgets
        warnings.warn("said by the program", UserWarning, stacklevel=1)
        return x.exp()

    fast = on_tape(function, strict=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for x, _ in batches(6):
            fast(x)
    assert sum(each.category is UserWarning for each in caught) > 1
    assert fast.stats().hits


@pytest.mark.skipif(
    not hasattr(torch._C, "_warn_on_accumulate_grad_stream_mismatch"), reason="this torch warns of no streams"
)
def test_torchs_warning_of_streams_is_on_again_when_its_nodes_are_gone() -> None:
    fast = on_tape(mlp())
    gc.collect()  # of what other tests have left
    before = stream_warnings._silent
    alive = []
    for x, _ in batches(5):
        result = fast(x)
        result.sum().backward()
        alive.append(stream_warnings._silent > before)
        del result
    assert alive == [True, True, False, False, False]
    assert stream_warnings._silent == before
    assert stream_warnings._warns is not None
    assert stream_warnings._warns() == (before == 0)


def test_views_of_one_memory_are_of_inference_mode_where_eagers_are() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            y = x.exp()
            return y, y[1:]

    fast = on_tape(function)
    for x, _ in batches(4):
        assert [each.is_inference() for each in fast(x)] == [True, True]


def test_a_differentiable_result_with_gaps_may_be_written_in_place() -> None:
    weight = torch.ones(4, requires_grad=True)
    fast = on_tape(lambda x: (x * weight).repeat(1, 2)[:, ::2])
    for x, _ in batches(5):
        result = fast(x)
        result.mul_(2)
        result.sum().backward()
        assert torch.allclose(grad_of(weight), 2 * torch.tensor(_slopes(x)))
        weight.grad = None
    assert fast.stats().hits == 3


def _slopes(x: torch.Tensor) -> list[float]:
    weight = torch.ones(4, requires_grad=True)
    ((x * weight).repeat(1, 2)[:, ::2]).sum().backward()
    return list(grad_of(weight).tolist())


def test_a_view_of_an_argument_that_was_made_with_autograd_off_is_refused_by_name() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x[0]

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="a view that is made where autograd is off"), torch.no_grad():  # noqa: PT031
        for x, _ in batches(5):
            given = x.clone().requires_grad_()
            result = fast(given)
            assert (result.requires_grad, result.data_ptr()) == (True, given.data_ptr())


def test_a_custom_backward_may_give_none() -> None:
    weight = torch.ones(4, requires_grad=True)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return x * w

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            return grad * 3, None

    scaled: Any = Scaled.apply
    fast = on_tape(lambda x: scaled(x.sin(), weight).exp())
    for _ in range(5):
        x = torch.zeros(4, requires_grad=True)
        fast(x).sum().backward()
        assert torch.equal(grad_of(x), torch.full((4,), 3.0))
    assert weight.grad is None
    assert fast.stats().hits == 3


def test_a_function_that_seeds_a_generator_is_refused_by_name() -> None:
    own = torch.Generator()

    def function(x: torch.Tensor) -> torch.Tensor:
        own.manual_seed(3)
        return x + torch.randn(x.shape, generator=own)

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="it seeds a random generator"):  # noqa: PT031
        for x, _ in batches(5):
            assert torch.equal(fast(x), function(x))


def test_a_function_that_changes_what_requires_gradients_is_refused_by_name() -> None:
    weight = torch.ones(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.requires_grad_(not weight.requires_grad)
        return x.exp() * weight.detach()

    fast = on_tape(function, strict=False)
    found = []
    with pytest.warns(RuntimeWarning, match="a tensor requires gradients or does so no more"):  # noqa: PT031
        for x, _ in batches(5):
            fast(x)
            found.append(weight.requires_grad)
    assert found == [True, False, True, False, True]


def test_running_statistics_are_written_as_in_eager_where_autograd_notices_nothing() -> None:
    """The first call's backward comes after the second call has written them, as several calls in one loss have it."""

    def losses(make: Any) -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        fast = make(model)
        fast(torch.ones(8, 4))  # so that of the next two calls the second is the first to be served by a graph
        found = []
        for turn in range(6):
            x = torch.randn(8, 4, generator=torch.Generator().manual_seed(turn))
            loss = fast(x).square().sum() + fast(x + 1).abs().sum()
            loss.backward()
            found.append(loss.item())
        grads = grad_of(model.get_parameter("0.weight")).flatten().tolist()
        return [*found, *model.get_buffer("1.running_mean").tolist(), *grads]

    assert losses(lambda model: on_tape(model, strict=False)) == pytest.approx(losses(lambda model: model), rel=1e-5)


def test_gradients_of_all_parameters_are_cloned_by_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once: list[int] = []

    def counted(tensors: Any, by: float, cloned: Any = torch._foreach_mul) -> Any:
        at_once.append(len(tensors))
        return cloned(tensors, by)

    monkeypatch.setattr(torch, "_foreach_mul", counted)
    model = mlp().eval()
    fast = on_tape(model)
    for x, _ in batches(4):
        fast(x).square().sum().backward()
    model.zero_grad()
    plain, (x, _) = mlp().eval(), batches(5)[4]
    plain(x).square().sum().backward()
    at_once.clear()
    fast(x).square().sum().backward()
    assert at_once == [6]
    for mine, theirs in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(grad_of(theirs), grad_of(mine))


def test_clones_of_a_few_others_and_of_gaps_are_those_of_clone() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = [whole, whole[:, :2], whole.t(), whole.double(), torch.tensor([1, 2]), torch.tensor([1j]), whole + 1]
    for mine, theirs in zip(tensors, Clones(tensors).made(), strict=True):
        assert torch.equal(theirs, mine)
        assert theirs.stride() == mine.clone().stride()
        assert theirs.data_ptr() != mine.data_ptr()
