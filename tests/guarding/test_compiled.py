"""Guards and torch.compile: no graph break around, in, or with decorated functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from unstall import allow_sync, no_sync

pytestmark = pytest.mark.slow

Function = Callable[[torch.Tensor], torch.Tensor]
X = torch.linspace(0, 1, 5)


@pytest.fixture(params=["eager", "aot_eager"])
def compiled(request: pytest.FixtureRequest) -> Iterator[Callable[[Function], Function]]:
    """torch.compile(fullgraph=True), which needs no compiler."""
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, fullgraph=True, backend=request.param)
    torch._dynamo.reset()


Compile = Callable[[Function], Function]


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) + 1


def same(result: torch.Tensor) -> bool:
    return torch.equal(result, model(X))


def test_a_function_compiles_in_a_guard(compiled: Compile) -> None:
    with no_sync(), allow_sync("a test"), no_sync("count"):
        assert same(compiled(model)(X))


def test_a_compiled_function_is_decorated(compiled: Compile) -> None:
    assert same(no_sync()(compiled(model))(X))
    assert same(allow_sync("a test")(compiled(model))(X))


def test_a_compiled_function_has_guards_in_it(compiled: Compile) -> None:
    def guarded(x: torch.Tensor) -> torch.Tensor:
        with no_sync("count") as guard:
            y = torch.sin(x)
        with no_sync(), allow_sync("a test"):
            y = y + 1
        return y + guard.count + len(guard.waits)

    assert same(compiled(guarded)(X))
    with no_sync():
        assert same(compiled(guarded)(X))


@pytest.mark.parametrize("decorate", [no_sync(), no_sync("warn"), allow_sync("a test")])
def test_a_decorated_function_compiles(decorate: Callable[[Function], Function], compiled: Compile) -> None:
    assert same(compiled(decorate(model))(X))


def test_a_compiled_function_calls_a_decorated_one(compiled: Compile) -> None:
    inner = no_sync()(model)

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 1

    assert same(compiled(outer)(X))


def test_a_compiled_function_calls_a_decorated_compiled_one(compiled: Compile) -> None:
    inner = no_sync()(compiled(no_sync()(model)))

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x) * 1

    assert same(compiled(outer)(X))


def test_a_module_whose_forward_is_decorated_is_trained(compiled: Compile) -> None:
    class Linear(torch.nn.Linear):
        @no_sync()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with allow_sync("a test"):
                return super().forward(x)

    linear = Linear(5, 5)
    with no_sync():
        compiled(linear)(X).sum().backward()
    assert linear.weight.grad is not None
    assert torch.equal(linear.weight.grad, X.expand(5, 5))
