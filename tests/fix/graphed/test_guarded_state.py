"""What a function reads beside its arguments may change between calls, however it is held: the results follow."""

from __future__ import annotations

import array
import collections
import functools
import operator
import os
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from fix.graphed import settings_module
from fix.graphed.harness import mlp, on_tape

Case = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], Any]]
"""A function, and what changes its result."""


def class_attribute() -> Case:
    class Settings:
        scale = 1.0

    return lambda x: (x * Settings.scale).exp(), lambda: setattr(Settings, "scale", 2.0)


def attribute_in_front_of_its_class() -> Case:
    class Scaler:
        scale = 1.0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.scale).exp()

    scaler = Scaler()
    return scaler, lambda: setattr(scaler, "scale", 2.0)


def global_of_another_module() -> Case:
    settings_module.SCALE = 1.0
    return lambda x: settings_module.scaled(x).exp(), lambda: setattr(settings_module, "SCALE", 2.0)


def slot() -> Case:
    @dataclass(slots=True)
    class Settings:
        scale: float = 1.0

    settings = Settings()
    return lambda x: (x * settings.scale).exp(), lambda: setattr(settings, "scale", 2.0)


def set_of_flags() -> Case:
    flags = {"a"}
    return lambda x: x.exp() * (2 if "b" in flags else 1), lambda: flags.symmetric_difference_update({"a", "b"})


def deque() -> Case:
    held = collections.deque([1.0])
    return lambda x: x.exp() * held[0], lambda: operator.setitem(held, 0, 2.0)


def numpy_array() -> Case:
    held = np.ones(2)
    return lambda x: x.exp() * float(held[0]), lambda: held.fill(2.0)


def byte_array() -> Case:
    held = array.array("d", [1.0])
    return lambda x: x.exp() * held[0], lambda: held.__setitem__(0, 2.0)


def long_list() -> Case:
    held = [1.0] * 3000
    return lambda x: x.exp() * held[5], lambda: held.__setitem__(5, 2.0)


def long_dict() -> Case:
    held = {str(place): 1.0 for place in range(3000)}
    return lambda x: x.exp() * held["5"], lambda: held.update({"5": 2.0})


def attribute_by_a_computed_name() -> Case:
    held = types.SimpleNamespace(scale0=1.0)
    return lambda x: x.exp() * getattr(held, f"scale{x.dim() - 2}"), lambda: setattr(held, "scale0", 2.0)


def partial_keyword() -> Case:
    held = {"scale": 1.0}
    return functools.partial(lambda x, held: x.exp() * held["scale"], held=held), lambda: held.update(scale=2.0)


def method_of_a_dict() -> Case:
    held = {"scale": 1.0}
    get = held.get
    return lambda x: x.exp() * get("scale"), lambda: held.update(scale=2.0)


def default_by_keyword() -> Case:
    held = {"scale": 1.0}

    def function(x: torch.Tensor, *, held: dict[str, float] = held) -> torch.Tensor:
        return x.exp() * held["scale"]

    return function, lambda: held.update(scale=2.0)


def attribute_of_the_function() -> Case:
    def function(x: torch.Tensor) -> Any:
        return x.exp() * function.scale  # type: ignore[attr-defined]

    function.scale = 1.0  # type: ignore[attr-defined]
    return function, lambda: setattr(function, "scale", 2.0)


def environment() -> Case:
    return lambda x: x.exp() * float(os.environ["UNSTALL_TEST_SCALE"]), lambda: os.environ.update(
        UNSTALL_TEST_SCALE="2"
    )


def sign_of_zero() -> Case:
    held = {"zero": 0.0}
    return lambda x: 1 / (x.exp() * held["zero"]), lambda: held.update(zero=-0.0)


def item_of_a_sequential() -> Case:
    model = mlp().eval()
    return torch.no_grad()(lambda x: model(x[:4])), lambda: model.__setitem__(4, torch.nn.Linear(8, 3))


def bias_that_was_none() -> Case:
    layer = torch.nn.Linear(4, 4, bias=False)
    bias = torch.nn.Parameter(torch.ones(4))
    return torch.no_grad()(lambda x: layer(x)), lambda: setattr(layer, "bias", bias)


def forward_of_an_instance() -> Case:
    layer = torch.nn.Linear(4, 4)
    return torch.no_grad()(lambda x: layer(x)), lambda: setattr(layer, "forward", lambda x: x * 2)


def hook_of_all_modules() -> Case:
    layer = torch.nn.Linear(4, 4)
    add = torch.nn.modules.module.register_module_forward_hook
    return torch.no_grad()(lambda x: layer(x)), lambda: add(lambda module, args, result: result * 2)


def rows_cut_off() -> Case:
    weight = torch.nn.Parameter(torch.ones(8, 4))
    return torch.no_grad()(lambda x: (x @ weight.t()).exp().sum()), lambda: setattr(weight, "data", weight.data[:4])


_CASES = [
    *(class_attribute, attribute_in_front_of_its_class, global_of_another_module, slot, set_of_flags, deque),
    *(numpy_array, byte_array, long_list, long_dict, attribute_by_a_computed_name, partial_keyword, method_of_a_dict),
    *(default_by_keyword, attribute_of_the_function, environment, sign_of_zero, item_of_a_sequential),
    *(bias_that_was_none, forward_of_an_instance, hook_of_all_modules, rows_cut_off),
]


@pytest.mark.parametrize("case", _CASES)
def test_what_is_changed_is_followed(case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_TEST_SCALE", "1")  # and is gone after the test
    function, change = case()
    fast = on_tape(function)
    x = torch.linspace(-1, 1, 16).reshape(4, 4)
    for _ in range(4):
        before = fast(x)
    assert fast.stats().hits == 2
    added = change()
    try:
        expected = function(x)
        assert not torch.equal(expected, before)
        for _ in range(4):
            assert torch.equal(fast(x), expected)
    finally:
        if hasattr(added, "remove"):
            added.remove()


def test_a_global_is_no_attribute_of_that_name() -> None:
    made: dict[str, Any] = {}
    source = "def function(x):\n    return holder.loss(x).sin()\n"
    exec(compile(source, __file__, "exec"), made)
    made["holder"] = types.SimpleNamespace(loss=torch.exp)
    fast = on_tape(made["function"])
    for _ in range(6):
        made["loss"] = fast(torch.ones(2))
    assert (fast.stats().captures, fast.stats().hits) == (1, 4)


def test_state_that_a_custom_backward_reads_is_followed() -> None:
    state = {"scale": 1.0}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * state["scale"]

    scaled: Any = Scaled.apply
    fast = on_tape(lambda x: scaled(x.exp()).cos())
    found = []
    for call in range(8):
        state["scale"] = 1.0 if call < 5 else 2.0
        x = torch.ones(2, requires_grad=True)
        found.append(torch.autograd.grad(fast(x).sum(), x)[0])
    assert torch.equal(found[5], 2 * found[4])
    assert fast.stats().captures == 2


@pytest.mark.parametrize("hidden", [iter(range(99)), iter(range(99)).__next__])
def test_an_iterator_is_not_drawn_from_in_vain(hidden: Any) -> None:
    draw = hidden if callable(hidden) else lambda: next(hidden)
    fast = on_tape(lambda x: x.exp() + draw(), strict=False)
    with pytest.warns(RuntimeWarning, match="it may draw from the iterator"):
        found = [fast(torch.zeros(1)).item() for _ in range(5)]
    assert found == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_function_that_prints_goes_on_to(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        print("called")
        return x.exp()

    fast = on_tape(function, strict=False)
    with pytest.warns(RuntimeWarning, match="it prints, or reads or writes a file"):  # noqa: PT031
        for _ in range(5):
            fast(torch.zeros(1))
    assert capsys.readouterr().out == "called\n" * 5


def test_objects_that_come_and_go_are_not_kept() -> None:
    class Batch:
        def __init__(self) -> None:
            self.x = torch.ones(2)

    import weakref

    fast = on_tape(lambda batch: batch.x.exp(), max_graphs=2)
    alive = []

    def calls() -> None:
        for _ in range(30):
            batch = Batch()
            fast(batch)
            alive.append(weakref.ref(batch))

    with pytest.warns(RuntimeWarning, match="numbers, strings or objects among them are others at each call"):
        calls()
    assert sum(each() is not None for each in alive) <= 4
