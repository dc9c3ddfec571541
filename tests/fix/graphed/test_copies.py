"""Copied, what is graphed has graphs of its own; saved, it is what it was made of."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fix.graphed.harness import batches, mlp, on_tape
from torch.optim.swa_utils import AveragedModel

import unstall


def _served(model: Any, calls: int = 4) -> list[torch.Tensor]:
    with torch.no_grad():
        return [model(x) for x, _ in batches(calls)]


@unstall.graphed
def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


class Scaler:
    def __init__(self) -> None:
        self.scale = 2.0
        self.scaled = on_tape(self.scaled)  # type: ignore[method-assign]

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() * self.scale

    @unstall.graphed
    def halved(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_a_copy_of_a_graphed_module_is_graphed_anew(copied: Any) -> None:
    fast = on_tape(mlp().eval(), max_graphs=1, lanes=(2,))
    expected = _served(fast)
    other = copied(fast)
    assert issubclass(type(other), torch.nn.Sequential)
    assert other.stats().calls == 0
    assert all(map(torch.equal, _served(other), expected))
    assert (other.stats().hits, other.stats().captures) == (2, 1)
    assert (fast.stats().hits, fast.stats().captures) == (2, 1)
    assert fast[0] in list(fast.modules())
    assert (copied is copy.deepcopy) == (other[0].weight is not fast[0].weight)


def test_a_deep_copy_follows_its_own_weights() -> None:
    fast = on_tape(mlp().eval())
    other = copy.deepcopy(fast)
    before = _served(other)
    with torch.no_grad():
        fast[0].weight.zero_()
    assert all(map(torch.equal, _served(other), before))


def test_an_average_of_a_graphed_module_is_graphed_and_learns() -> None:
    fast = on_tape(mlp().eval())
    average: Any = AveragedModel(fast, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    for _ in range(4):
        with torch.no_grad():
            fast[0].weight.add_(1)
        average.update_parameters(fast)
        found = _served(average, 3)
    assert torch.equal(found[0], _served(copy.deepcopy(average.module)._unstall_module, 1)[0])
    assert average.module.stats().hits == 10


def test_a_module_that_holds_a_graphed_one_is_copied_with_it() -> None:
    whole: Any = torch.nn.Sequential(on_tape(mlp().eval()), torch.nn.Linear(3, 2))
    other = copy.deepcopy(whole)
    assert all(map(torch.equal, _served(other), _served(whole)))
    assert other[0].stats().hits == whole[0].stats().hits == 2


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_graphed_module_is_the_plain_one(protocol: int) -> None:
    fast = on_tape(mlp().eval())
    _served(fast)
    found = pickle.loads(pickle.dumps(fast, protocol))
    assert type(found) is torch.nn.Sequential
    assert all(map(torch.equal, _served(found), _served(fast)))


@pytest.mark.slow
def test_what_is_saved_is_loaded_without_this_package(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 2)
    torch.save({"model": on_tape(model), "plain": model}, tmp_path / "model.pt")
    program = (
        "import sys, torch; sys.modules['unstall'] = None; found = torch.load(sys.argv[1], weights_only=False);"
        "assert found['model'] is found['plain'] and type(found['plain']) is torch.nn.Linear"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model.pt")]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0


def test_a_model_whose_forward_is_graphed_is_copied_and_saved() -> None:
    model: Any = mlp().eval()
    fast = model.forward = on_tape(model.forward)
    expected = _served(model)
    other = copy.deepcopy(model)
    with torch.no_grad():
        model[0].weight.zero_()
    assert all(map(torch.equal, _served(other), expected))
    assert other.forward.stats().hits == 2
    assert fast.stats().hits == 2
    held = io.BytesIO()
    torch.save(other, held)
    held.seek(0)
    loaded = torch.load(held, weights_only=False)
    assert all(map(torch.equal, _served(loaded), expected))
    assert loaded.forward.__self__ is loaded


def test_an_object_with_a_graphed_method_is_copied() -> None:
    one = Scaler()
    other = copy.deepcopy(one)
    other.scale = 3.0
    x = torch.ones(2)
    for _ in range(4):
        assert torch.equal(one.scaled(x) * 1.5, other.scaled(x))
    assert one.scaled.stats().hits == other.scaled.stats().hits == 2  # type: ignore[attr-defined]


def test_a_graphed_function_is_copied_and_pickled_as_functions_are() -> None:
    assert copy.copy(doubled) is copy.deepcopy(doubled) is doubled
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    assert pickle.loads(pickle.dumps(Scaler.halved)) is Scaler.halved
