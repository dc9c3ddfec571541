"""Prints facts of `graphed` on the GPU that there is, real or virtual, as one line of JSON."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

import unstall

CUDA = "cuda"
facts: dict[str, Any] = {}


def fact(function: Callable[[], Any]) -> None:
    facts[function.__name__] = function()


def grad_of(leaf: torch.Tensor) -> torch.Tensor:
    assert leaf.grad is not None
    return leaf.grad


def mlp(**more: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    nn = torch.nn
    layers = (nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 4))
    return nn.Sequential(*layers).to(CUDA)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(3)
    return [(torch.randn(16, 32, device=CUDA), torch.randint(0, 4, (16,), device=CUDA)) for _ in range(count)]


def said(call: Callable[..., Any], *arguments: Any) -> list[str]:
    """What it warns of over some calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            call(*arguments)
    return [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]


@fact
def branches() -> Any:
    weights = [torch.randn(64, 64, device=CUDA) for _ in range(4)]

    @unstall.graphed
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = (x @ weights[0]).relu() @ weights[1], (x @ weights[2]).tanh() @ weights[3]
        left.add_(1)
        return left + right, torch.cat([left, right])

    same = []
    for _ in range(8):
        x = torch.randn(64, 64, device=CUDA)
        same.append(all(map(torch.equal, function(x), function.__wrapped__(x))))
    stats = function.stats()
    return same, stats.hits, stats.graphs[0].gain > 1, stats.pool_bytes > 0, stats.launches_saved


@fact
def training() -> Any:
    """With a learning rate that a scheduler changes after each step."""
    losses = []
    for is_graphed in (False, True):
        model = mlp()
        rate = torch.tensor(1e-2, device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        call: Any = unstall.graphed(step) if is_graphed else step
        given = batches(20)
        torch.manual_seed(1)
        found = []
        for batch in given:
            found.append(call(*batch).item())
            scheduler.step()
        losses.append(found)
    return losses[0] == losses[1], call.stats().hits


@fact
def module_through_autograd() -> Any:
    plain, graphed = mlp(), mlp()
    fast = unstall.graphed(graphed)
    same = []
    for turn, (x, y) in enumerate(batches(8)):
        grads = []
        for model, call in ((plain, plain), (graphed, fast)):
            torch.manual_seed(turn)
            loss = torch.nn.functional.cross_entropy(call(x), y)
            loss.backward()
            grads.append([grad_of(parameter).clone() for parameter in model.parameters()])
            model.zero_grad()
            del loss
        same.append(all(map(torch.equal, *grads)))
    return same, fast.stats().hits


@fact
def results_that_outlive_the_next_call() -> Any:
    """As a training loop's `outputs` do: they keep the AccumulateGrad nodes of the calls that were proved."""
    model = mlp()
    fast = unstall.graphed(model)
    accumulated: list[int] = []

    def note(_: torch.Tensor) -> None:
        accumulated.append(torch.cuda.current_stream().cuda_stream)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(note)
    same = []
    for x, y in batches(8):
        result = fast(x)  # the one before is alive
        loss = torch.nn.functional.cross_entropy(result, y)
        accumulated.clear()
        replayed: list[int] = []
        if result.grad_fn is not None:
            result.grad_fn.register_prehook(lambda _, to=replayed: to.append(torch.cuda.current_stream().cuda_stream))
        loss.backward()
        model.zero_grad()
        same.append(set(accumulated) == set(replayed))
    return same, fast.stats().hits


def item(x: torch.Tensor) -> torch.Tensor:
    return x * x.sum().item()


def to_cpu(x: torch.Tensor) -> torch.Tensor:
    return x.cpu()


def handed_over(x: torch.Tensor) -> list[torch.Tensor]:
    unstall.to_host(x.exp())
    return [x]


METRICS = unstall.MetricBuffer()


def measured(x: torch.Tensor) -> torch.Tensor:
    METRICS.add(loss=x.sum())
    return x.exp()


def from_cpu(x: torch.Tensor) -> torch.Tensor:
    return x + torch.tensor([1.0, 2.0, 3.0], device=CUDA)


def mask(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def synchronize(x: torch.Tensor) -> torch.Tensor:
    torch.cuda.synchronize()
    return x + 1


OUTSIDE = torch.tensor(3.0)


def host_scalar(x: torch.Tensor) -> torch.Tensor:
    return x * OUTSIDE


@fact
def refused() -> Any:
    functions = (item, to_cpu, handed_over, measured, from_cpu, mask, synchronize, host_scalar)
    return {function.__name__: said(unstall.graphed(function), torch.ones(3, device=CUDA)) for function in functions}


@fact
def optimizer_on_the_host() -> Any:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return said(unstall.graphed(step), *batches(1)[0])


@fact
def average_on_the_host() -> Any:
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x: torch.Tensor) -> Any:
        average.update_parameters(model)
        return model(x)

    return said(unstall.graphed(step), batches(1)[0][0])


@fact
def a_wait_that_only_the_capture_finds() -> Any:
    """As a library's own wait would be: the function's first calls show nothing. Random numbers go on afterwards."""
    calls: list[None] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        calls.append(None) if len(calls) < 2 else None
        if torch.cuda.is_current_stream_capturing():
            torch._C._cuda_synchronize()
        return torch.nn.functional.dropout(x, 0.5).exp()

    messages = said(unstall.graphed(function), torch.ones(8, device=CUDA))
    torch.manual_seed(5)
    first = torch.rand(3, device=CUDA)
    torch.manual_seed(5)
    works = torch.equal(first, torch.rand(3, device=CUDA))

    @unstall.graphed
    def after(x: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            x = x.sin() + 1
        return x

    for _ in range(4):
        after(torch.ones(8, device=CUDA))
    stats = after.stats()
    return messages, works, stats.hits, list(map(str, stats.refusals))


@fact
def gradients_beside_a_wait_that_a_capture_leaves_out() -> Any:
    """After each call, those of plain training: the second one is looked at in a capture that is thrown away."""

    def trained(make: Callable[..., Any]) -> list[list[torch.Tensor]]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to(CUDA)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> Any:
            if not torch.cuda.is_current_stream_capturing():
                x.isnan().any().item()
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        call = make(step)
        found = []
        for x, _ in batches(5):
            call(x)
            found.append([grad_of(each).clone() for each in model.parameters()])
        made.append(call)
        return found

    made: list[Any] = []
    wanted, given = trained(lambda step: step), trained(unstall.graphed)
    return [all(map(torch.equal, *pair)) for pair in zip(wanted, given, strict=True)], made[1].stats().hits


@fact
def workspaces_that_are_cleared() -> Any:
    """As torch.compile clears cuBLAS's, and gives the memory to others."""
    torch.manual_seed(0)
    up, down = torch.randn(768, 3072, device=CUDA), torch.randn(3072, 768, device=CUDA)

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ up).relu() @ down + (x @ up).tanh() @ down

    fast = unstall.graphed(function)
    xs = [torch.randn(64, 768, device=CUDA) for _ in range(8)]
    for x in xs[:4]:
        fast(x)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.ones(1 << 23, device=CUDA) for _ in range(16)]
    same = [torch.equal(fast(x), function(x)) for x in xs[4:]]
    return fast.stats().hits > 4, same, all(bool((other == 1).all()) for other in others)


json.dump(facts, sys.stdout)
print()
