"""Training steps and modules served by graphs train as they do without."""

from __future__ import annotations

from typing import Any, Self

import pytest
import torch
from fix.graphed.harness import batches, grad_of, mlp, on_tape, training_step


def _losses(step: Any, count: int = 10) -> list[float]:
    torch.manual_seed(2)
    return [step(*batch).item() for batch in batches(count)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_whole_step_trains_as_eager_does(dropout: float, set_to_none: bool) -> None:
    plain, graphed = mlp(dropout=dropout), mlp(dropout=dropout)
    steps = []
    for model in (plain, graphed):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        steps.append(step)
    fast = on_tape(steps[1])
    assert _losses(steps[0]) == _losses(fast)
    assert fast.stats().hits == 8
    for mine, theirs in zip(plain.state_dict().values(), graphed.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    for mine, theirs in zip(plain.parameters(), graphed.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


def test_a_changed_learning_rate_is_followed() -> None:
    def losses(make: Any) -> list[float]:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = make(training_step(model, optimizer))
        found = []
        for place, batch in enumerate(batches(30)):
            optimizer.param_groups[0]["lr"] = 0.1 if place < 15 else 0.01
            found.append(step(*batch).item())
        return found

    assert losses(lambda step: step) == losses(on_tape)


def test_of_a_learning_rate_that_changes_at_each_step_it_says_what_would_do() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = on_tape(training_step(model, optimizer), strict=False)
    with pytest.warns(RuntimeWarning, match=r"\['lr'\] was .* is .*; make it a tensor, as by lr=torch.tensor"):  # noqa: PT031
        for batch in batches(12):
            step(*batch)
            scheduler.step()


@pytest.mark.filterwarnings("ignore:.*gradients that it .* are other tensors")
def test_gradients_that_are_added_up_over_calls_are_those_of_eager() -> None:
    def grads(make: Any) -> list[torch.Tensor]:
        model = mlp()

        def backward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss.detach()

        add = make(backward)
        found = []
        for place, batch in enumerate(batches(24)):
            add(*batch)
            if place % 4 == 3:
                found.append(grad_of(next(model.parameters())).clone())
                model.zero_grad()
        return found

    assert all(map(torch.equal, grads(lambda step: step), grads(lambda step: on_tape(step, strict=False))))


def test_a_scheduler_within_the_step_is_refused_by_name() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    plain = training_step(model, optimizer)

    def step(*batch: Any) -> Any:
        loss = plain(*batch)
        scheduler.step()
        return loss

    fast = on_tape(step, strict=False)
    with pytest.warns(RuntimeWarning, match="changes the program's own state at each call"):  # noqa: PT031
        for batch in batches(5):
            fast(*batch)
    assert scheduler.last_epoch == 5


def _trained(make: Any) -> tuple[list[float], dict[str, torch.Tensor]]:
    model = mlp(dropout=0.2)
    head = torch.nn.Linear(3, 3)
    torch.nn.init.eye_(head.weight)
    fast = make(model)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    torch.manual_seed(4)
    losses = []
    for x, y in batches(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(fast(x)), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.state_dict()


def test_autograd_goes_through_a_graphed_module() -> None:
    made: list[Any] = []

    def make(model: torch.nn.Module) -> Any:
        made.append(on_tape(model))
        return made[-1]

    plain, fast = _trained(lambda model: model), _trained(make)
    assert plain[0] == fast[0]
    assert all(torch.equal(plain[1][name], fast[1][name]) for name in plain[1])
    assert made[0].stats().hits == 8


def test_gradients_reach_arguments_and_tensors_from_outside() -> None:
    weight = torch.full((4,), 2.0, requires_grad=True)
    outside = weight * 3  # not a leaf: its gradient goes on to weight

    fast = on_tape(lambda x: (x * outside).exp())
    for _ in range(5):
        x = torch.full((4,), 0.1, requires_grad=True)
        y = (x * outside).exp().sum()
        expected = torch.autograd.grad(y, (x, outside))
        found = torch.autograd.grad(fast(x).sum(), (x, outside))
        assert all(map(torch.equal, expected, found))
    assert fast.stats().hits == 3


def test_a_second_forward_before_the_backward_of_the_first_is_right() -> None:
    model = mlp().eval()
    fast = on_tape(model)
    for x, _ in batches(4):
        fast(x).sum().backward()
        model.zero_grad()
    (one, _), (two, _) = batches(2)
    (model(one).sum() + 2 * model(two).sum()).backward()
    expected = [grad_of(parameter).clone() for parameter in model.parameters()]
    model.zero_grad()
    (fast(one).sum() + 2 * fast(two).sum()).backward()
    assert all(torch.allclose(grad_of(p), e, rtol=1e-6) for p, e in zip(model.parameters(), expected, strict=True))


def test_a_second_backward_is_right_where_the_function_can_be_run_again() -> None:
    fast, plain = on_tape(mlp().eval()), mlp().eval()
    for x, _ in batches(4):
        for model in (fast, plain):
            model.zero_grad()
            result = model(x).sum()
            result.backward(retain_graph=True)
            result.backward()
    assert all(map(torch.equal, map(grad_of, fast.parameters()), map(grad_of, plain.parameters())))
    assert fast.stats().hits == 2


def test_a_second_backward_of_what_writes_and_draws_is_right() -> None:
    fast, plain = on_tape(mlp(dropout=0.3)), mlp(dropout=0.3)
    for turn, (x, _) in enumerate(batches(6)):
        for model in (fast, plain):
            torch.manual_seed(turn)
            model.zero_grad()
            result = model(x).sum()
            result.backward(retain_graph=True)
            result.backward()
            del result
    assert all(map(torch.equal, map(grad_of, fast.parameters()), map(grad_of, plain.parameters())))
    assert fast.stats().hits == 4


def test_a_backward_of_a_backward_that_would_change_state_is_an_error_by_name() -> None:
    fast = on_tape(mlp())
    for x, _ in batches(4):
        slopes = torch.autograd.grad(fast(x).sum(), fast[0].weight)
        del slopes
    with pytest.raises(RuntimeError, match="running it again would change what it writes"):
        torch.autograd.grad(fast(x).sum(), fast[0].weight, create_graph=True)


def test_gradients_of_gradients_are_those_of_eager() -> None:
    fast, plain = on_tape(mlp().eval()), mlp().eval()
    for x, _ in batches(5):
        for model in (fast, plain):
            model.zero_grad()
            given = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(model(given).tanh().sum(), given, create_graph=True)
            slope.square().sum().backward()
    assert torch.equal(fast[0].weight.grad, grad_of(plain.get_parameter("0.weight")))
    assert fast.stats().hits == 3


def test_what_no_gradient_comes_in_for_has_none() -> None:
    class Heads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.used(x), self.unused(x)

    fast = on_tape(Heads())
    for x, _ in batches(5):
        fast.zero_grad()
        fast(x)[0].sum().backward()
        assert fast.used.weight.grad is not None
        assert fast.unused.weight.grad is None
    assert fast.stats().hits == 3


def test_a_parameter_or_argument_that_is_returned_is_itself() -> None:
    layer = torch.nn.Linear(4, 4)
    fast = on_tape(lambda x: (x, layer.weight, layer(x).tanh()))
    for x, _ in batches(4):
        given = x.clone().requires_grad_()
        one, other, result = fast(given)
        assert one is given
        assert other is layer.weight
        result.sum().backward()


def _trained_with(change: Any, make: Any) -> list[torch.Tensor]:
    model = mlp()
    step = make(training_step(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    for place, batch in enumerate(batches(12)):
        if place == 6:
            change(model)
        step(*batch)
    return list(model.state_dict().values())


def freeze(model: torch.nn.Sequential) -> None:
    model[0].requires_grad_(False)


def hook(model: torch.nn.Sequential) -> None:
    model.get_parameter("0.weight").register_hook(lambda grad: grad * 0)


@pytest.mark.parametrize("change", [freeze, hook])
def test_parameters_that_are_frozen_or_hooked_later_are_eagers(change: Any) -> None:
    assert all(map(torch.equal, _trained_with(change, lambda step: step), _trained_with(change, on_tape)))


def test_a_backward_hook_of_a_module_goes_on_to_run() -> None:
    model, calls = mlp().eval(), []
    model[2].register_full_backward_hook(lambda module, before, after: calls.append(1))
    fast = on_tape(model, strict=False)
    with pytest.warns(RuntimeWarning, match="a backward hook of"):  # noqa: PT031
        for x, _ in batches(5):
            fast(x).sum().backward()
    assert len(calls) == 5


def test_methods_that_a_module_overrides_are_its_own() -> None:
    class Frozen(torch.nn.Sequential):
        def train(self, mode: bool = True) -> Self:
            super().train(mode)
            self[1].eval()
            return self

    fast = on_tape(Frozen(*mlp()))
    fast.train()
    assert isinstance(fast, Frozen)
    assert (fast[0].training, fast[1].training) == (True, False)


def test_train_and_eval_have_graphs_of_their_own() -> None:
    model, plain = mlp(dropout=0.3), mlp(dropout=0.3)
    fast = on_tape(model)
    for trains in (True, False, True, False):
        fast.train(trains)
        plain.train(trains)
        torch.manual_seed(9)
        expected = [plain(x) for x, _ in batches(5)]
        torch.manual_seed(9)
        for mine, (x, _) in zip(expected, batches(5), strict=True):
            found = fast(x)
            assert torch.equal(found, mine)
            del found
    assert fast.stats().captures == 2
    assert model.training is False


def test_a_graphed_module_is_the_module_in_all_else() -> None:
    model = mlp()
    fast = on_tape(model)
    assert list(fast.state_dict()) == list(model.state_dict())
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    assert isinstance(fast, torch.nn.Module)
    assert isinstance(fast, torch.nn.Sequential)
    fast[0].weight = torch.nn.Parameter(torch.zeros(8, 4))
    assert model.get_parameter("0.weight").sum() == 0
    fast.double()
    assert model[0].weight.dtype == torch.float64


def test_a_replaced_parameter_is_noticed() -> None:
    model = mlp().eval()
    fast = on_tape(model)
    with torch.no_grad():
        for x, _ in batches(4):
            fast(x)
        model[4].weight = torch.nn.Parameter(torch.zeros(3, 8))
        for x, _ in batches(4):
            assert torch.equal(fast(x), model.get_parameter("4.bias").expand(6, 3))


def test_a_hook_that_is_added_later_is_noticed() -> None:
    model = mlp().eval()
    fast = on_tape(model)
    with torch.no_grad():
        for x, _ in batches(4):
            fast(x)
        model[4].register_forward_hook(lambda module, args, result: result * 0)
        for x, _ in batches(4):
            assert fast(x).abs().sum() == 0


def test_gradients_that_a_step_leaves_alone_stay_the_programs() -> None:
    def train(make: Any) -> tuple[list[torch.Tensor], Any]:
        generator, critic = mlp(), torch.nn.Linear(3, 1)
        torch.nn.init.constant_(critic.weight, 0.1)
        optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

        def of_critic(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            loss = critic(generator(x).detach()).square().mean()  # reads the generator, and gives it no gradients
            loss.backward()
            optimizer.step()
            return loss

        step, found = make(of_critic), []
        for number, (x, _) in enumerate(batches(24)):
            if number % 8 == 7:
                generator.zero_grad()  # the next gradients are other tensors
            generator(x).square().mean().backward()
            step(x)
            found += [critic.weight.detach().clone(), *(grad_of(p).clone() for p in generator.parameters())]
        return found, step

    graphed, step = train(on_tape)
    assert all(map(torch.equal, train(lambda step: step)[0], graphed))
    assert step.stats().hits >= 20


def test_gradients_that_are_views_of_what_a_step_writes_are_followed() -> None:
    def gradients(make: Any) -> list[torch.Tensor]:
        model, frozen = mlp(), torch.nn.Linear(4, 3)
        torch.nn.init.constant_(frozen.weight, 0.1)
        flat = torch.ones(12)
        frozen.weight.grad = flat.view(3, 4)
        optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []

        def halve(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            loss = (model(x) - frozen(x).detach()).square().mean()
            loss.backward()
            flat.mul_(0.5)
            return loss

        step = make(halve)
        for number, (x, _) in enumerate(batches(24)):
            if number == 12:
                frozen.weight.grad = torch.ones(3, 4)  # no view of it any more
            step(x)
            found += [flat.clone(), grad_of(frozen.weight).clone()]
        return found

    assert all(map(torch.equal, gradients(lambda step: step), gradients(on_tape)))


def test_sparse_gradients_that_a_step_leaves_alone_are_no_matter() -> None:
    model, table = mlp(), torch.nn.Embedding(6, 4, sparse=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    table(torch.tensor([1, 2])).sum().backward()

    def train(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = model(x + table.weight.detach()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    step = on_tape(train)
    for x, _ in batches(6):
        step(x)
    assert step.stats().hits == 4
    assert grad_of(table.weight).is_sparse


def test_an_optimizers_step_alone_follows_new_gradients() -> None:
    def weights(make: Any) -> list[torch.Tensor]:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        update = make(lambda: optimizer.step())
        found = []
        for x, y in batches(12):
            model.zero_grad()  # so that the gradients are other tensors each time
            torch.nn.functional.cross_entropy(model(x), y).backward()
            update()
            found.append(model.get_parameter("4.weight").detach().clone())
        return found

    def make(step: Any) -> Any:
        return on_tape(step, strict=False)

    with pytest.warns(RuntimeWarning, match="changes between calls|changes the program's own state"):
        graphed = weights(make)
    assert all(map(torch.equal, weights(lambda step: step), graphed))


def test_a_step_with_a_gradscaler_is_told_to_graph_the_model_alone_which_can_be() -> None:
    def training(model: Any, made: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

        def step(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        return made(step)

    whole = training(mlp(), lambda step: on_tape(step, strict=False))
    with pytest.warns(RuntimeWarning, match="runs as it is"):
        wanted = _losses(whole)
    remedies = {each.remedy for each in whole.stats().refusals if "GradScaler" in each.reason}
    assert remedies == {"use bfloat16, which needs no GradScaler, or graph the model alone"}
    model = on_tape(mlp())
    assert _losses(training(model, lambda step: step)) == wanted
    assert model.stats().hits == 8
