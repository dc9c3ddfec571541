"""Runs a function, and keeps elements of what it is given, what each operator returns, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unstall.fix.tensors.nesting import tensors_in
from unstall.numbers.noise import Noise, base_name, is_view, real_parts
from unstall.numbers.operators import NOWHERE, Call, Operators, Place
from unstall.numbers.ways import Way

SAMPLES, ENDS = 64, 1 << 16
"""Elements that are kept of an operator's result, and of the function's own results, gradients and arguments."""
_SEED = 20  # of the random numbers of the function, and of the gradients of its results
_UNSET = ("empty", "new_empty")  # their results have no values yet


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor that was seen in a run.

    Attributes:
        kind: "given" (an input, a parameter or a buffer before the run), "operator", or an end: "result", "gradient",
            or "after" (an input, a parameter or a buffer after the run).
        name: The name of the input or the parameter, the number of the result, or the operator: "weight", "mm".
        place: The line that called the operator.
        shape, dtype: Of the tensor. A complex one has one dimension more, for the real and the imaginary part.
        values: The elements that are kept, as float64: at places that depend on the shape only.
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


@dataclass(frozen=True, slots=True)
class Ran:
    """What was seen in a run. `ends`: results, gradients, and arguments as they are after it, by kind and name."""

    given: dict[str, Seen]
    operators: tuple[Seen, ...]
    ends: dict[tuple[str, str], Seen]

    def __len__(self) -> int:
        return len(self.given) + len(self.operators) + len(self.ends)


def run(taken: Way, noise: Noise | None = None) -> Ran:
    """Runs a function once, and its backward pass if a result needs gradients and it has run none itself.

    Args:
        taken: The function, its arguments, and whether its operators are seen. Gradients of the modules and tensors
            that it is given are seen in any case.
        noise: Adds random errors.
    """
    given = list(_given_of(taken))
    for _, tensor in given:
        tensor.grad = None
    before = _Kept()
    for name, tensor in given:
        before.keep("given", name, NOWHERE, tensor, ENDS)
    operators, ends = _Kept(), _Kept()
    call: Call | None = noise.call if noise is not None else taken.call
    watch = Operators(operators.of_operator, call) if taken.operators else None
    torch.manual_seed(_SEED)
    with taken.around(watch):
        results = tensors_in(taken.fn(*taken.inputs))
    differentiable = [each for each in results if each.requires_grad and each.is_floating_point()]
    if differentiable and all(tensor.grad is None for _, tensor in given if tensor.is_leaf):
        seeds = [_gradient(each) for each in differentiable]
        with taken.around(watch):
            torch.autograd.backward(differentiable, seeds)
    for number, tensor in enumerate(results, 1):
        ends.keep("result", str(number), NOWHERE, tensor, ENDS)
    for name, tensor in given:
        if tensor.is_leaf and tensor.grad is not None:
            ends.keep("gradient", name, NOWHERE, tensor.grad, ENDS)
        ends.keep("after", name, NOWHERE, tensor, ENDS)
    return Ran(
        {each.name: each for each in before.seen()},
        tuple(operators.seen()),
        {(each.kind, each.name): each for each in ends.seen()},
    )


def _given_of(taken: Way) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the tensors that a function is given, by name: those of its arguments, and of modules."""
    if taken.module is not None:
        yield from _tensors_of(taken.module, "")
    for number, each in enumerate(taken.inputs, 1):
        for module in taken.modules_in(each):
            yield from _tensors_of(module, "" if taken.module is None else f"input {number}.")
        if not isinstance(each, torch.nn.Module):
            tensors = tensors_in(each)
            for at, tensor in enumerate(tensors, 1):
                yield f"input {number}" + (f", tensor {at}" if len(tensors) > 1 else ""), tensor


def _tensors_of(module: torch.nn.Module, before: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        yield before + name, tensor


def _gradient(of: torch.Tensor) -> torch.Tensor:
    """Returns the same random gradient for results of this shape, whatever their type and device."""
    chance = torch.Generator("cpu").manual_seed(_SEED)
    drawn = torch.randn(of.shape, dtype=torch.float64, device="cpu", generator=chance)
    return drawn.to(device=of.device, dtype=of.dtype)


class _Kept:
    """Elements of tensors. They stay on their device until `seen`."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, str, Place, tuple[int, ...], torch.dtype, torch.Tensor]] = []

    def of_operator(self, func: Any, place: Place, result: Any) -> None:
        name = base_name(func)
        if not is_view(func) and not name.startswith(_UNSET):
            for each in result if isinstance(result, tuple | list) else (result,):
                if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                    self.keep("operator", name, place, each, SAMPLES)

    def keep(self, kind: str, name: str, place: Place, tensor: torch.Tensor, most: int) -> None:
        if tensor.layout == torch.strided and not tensor.is_nested and not tensor.is_quantized:
            real = real_parts(tensor.detach())
            picked = real[positions(tuple(real.shape), real.device, most)]
            self._kept.append((kind, name, place, tuple(real.shape), tensor.dtype, picked.to(torch.float64)))

    def seen(self) -> list[Seen]:
        return [
            Seen(kind, name, place, shape, dtype, values.reshape(-1).cpu().numpy())
            for kind, name, place, shape, dtype, values in self._kept
        ]


@lru_cache(4096)
def positions(shape: tuple[int, ...], device: torch.device, most: int) -> tuple[torch.Tensor, ...]:
    """Returns the places of the elements that are kept, at most so many, as one index for each dimension."""
    count = math.prod(shape)
    chance = np.random.default_rng(count)
    flat = np.arange(count) if count <= most else np.unique(chance.integers(0, count, most))
    return tuple(torch.from_numpy(each).to(device) for each in np.unravel_index(flat, shape)) if shape else ()
