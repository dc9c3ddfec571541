"""Runs a function, and samples what it is given, what each operator returns, and its results and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.fix.tensors.nesting import tensors_in
from unstall.numbers.noise import base_name, is_view
from unstall.numbers.operators import NOWHERE, Operators, Place, Run
from unstall.numbers.ways import Way

SAMPLES = 64
"""Elements that are kept of each tensor, at positions that depend on its shape only."""
_UNSET = ("empty", "new_empty")  # their results have no values yet
_SEED = 20  # of the random numbers of the function, and of the gradients of its results


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor that was seen in a run: `SAMPLES` of its elements, or all if there are fewer.

    Attributes:
        kind: "given" (an input, a parameter or a buffer), "operator", "result" or "gradient".
        name: The name of the input, the parameter, or the operator: "weight", "mm".
        place: The line that called the operator.
        shape, dtype: Of the tensor.
        values: The elements, as float64. Complex numbers and integers are not seen.
    """

    kind: str
    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: torch.dtype
    values: NDArray[np.float64]

    @property
    def key(self) -> tuple[object, ...]:
        """What it has in common with the same tensor of another run. Lines may have moved."""
        return self.kind, self.name, self.place.backward, self.shape

    @property
    def loose_key(self) -> tuple[object, ...]:
        """As `key`, for operators with another name, as kernels of attention on the CPU and on a GPU have."""
        return self.kind, self.place.backward, self.shape


def _given_of(taken: Way) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors that a function is given, by name: those of its arguments, and of modules."""
    if taken.module is not None:
        yield from _tensors_of(taken.module)
    for number, each in enumerate(taken.inputs, 1):
        if isinstance(each, torch.nn.Module):
            yield from _tensors_of(each)
        else:
            for tensor in tensors_in(each):
                yield f"input {number}", tensor


def _tensors_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def run(taken: Way, call: Run | None = None) -> list[Seen]:
    """Runs a function once, and its backward pass if a result needs gradients. Returns what was seen, in order.

    Args:
        taken: The function, its arguments, and whether its operators are seen. Gradients of the modules and tensors
            that it is given are seen in any case.
        call: Calls each operator.
    """
    sampler = _Sampler()
    given = list(_given_of(taken))
    for name, tensor in given:
        tensor.grad = None
        sampler.see("given", name, NOWHERE, tensor)
    torch.manual_seed(_SEED)
    with Operators(sampler.of_operator, call) if taken.operators else nullcontext():
        results = _called(taken.fn, taken.inputs)
    for tensor in results:
        sampler.see("result", "result", NOWHERE, tensor)
    for name, tensor in given:
        if tensor.grad is not None:
            sampler.see("gradient", name, NOWHERE, tensor.grad)
    return sampler.seen()


def _called(fn: Callable[..., object], inputs: Sequence[object]) -> list[torch.Tensor]:
    results = tensors_in(fn(*inputs))
    differentiable = [each for each in results if each.requires_grad and each.is_floating_point()]
    if differentiable:
        torch.autograd.backward(differentiable, [_gradient(each) for each in differentiable])
    return results


def _gradient(of: torch.Tensor) -> torch.Tensor:
    """Returns the same random gradient for results of this shape, whatever their type and device."""
    drawn = torch.randn(of.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(_SEED))
    return drawn.to(device=of.device, dtype=of.dtype)


class _Sampler:
    def __init__(self) -> None:
        self._seen: list[tuple[str, str, Place, tuple[int, ...], torch.dtype, torch.Tensor]] = []

    def of_operator(self, func: Any, place: Place, result: Any) -> None:
        if not is_view(func) and not base_name(func).startswith(_UNSET):
            for each in result if isinstance(result, tuple | list) else (result,):
                self.see("operator", base_name(func), place, each)

    def see(self, kind: str, name: str, place: Place, tensor: object) -> None:
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and not tensor.is_sparse:
            picked = tensor.detach()[positions(tuple(tensor.shape), tensor.device)]
            self._seen.append((kind, name, place, tuple(tensor.shape), tensor.dtype, picked.to(torch.float64)))

    def seen(self) -> list[Seen]:
        return [
            Seen(kind, name, place, shape, dtype, values.reshape(-1).cpu().numpy())
            for kind, name, place, shape, dtype, values in self._seen
        ]


@lru_cache(4096)
def positions(shape: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Returns the places of the elements that are kept, as one index for each dimension."""
    count = math.prod(shape)
    chance = np.random.default_rng(count)
    flat = np.arange(count) if count <= SAMPLES else np.sort(chance.choice(count, SAMPLES, replace=False))
    return tuple(torch.from_numpy(each).to(device) for each in np.unravel_index(flat, shape)) if shape else ()
