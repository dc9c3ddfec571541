"""The ways in which a function can be run: on another device, in another type, in parts, as a graph, compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from unstall.errors import UsageError
from unstall.fix.tensors.nesting import map_tensors, tensors_in

Function: TypeAlias = Callable[..., Any]
NAMES = ("repeat", "cpu", "cuda", "float64", "batch", "graph", "compiled")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a function.

    Attributes:
        name: As the user writes it.
        fn, inputs: What is called with what: copies, so that the user's own keep their values and gradients.
        module: The module that `fn` is, or is a method of, if any.
        operators: Whether the operators are those that the function calls. Graphs and compiled functions have others.
    """

    name: str
    fn: Function
    inputs: tuple[object, ...]
    module: torch.nn.Module | None
    operators: bool = True


def way(which: str | Function, fn: Function, inputs: Sequence[object]) -> Way:
    """Returns the way that `which` names, or the way that runs another function.

    Raises:
        UsageError: there is no such way, or it is not possible here.
    """
    if isinstance(which, torch.nn.Module):
        return Way(type(which).__name__, *_copies(which, inputs, device=_device_of(which)))
    if callable(which):
        return Way(getattr(which, "__name__", type(which).__name__), *_copies(which, inputs))
    if which not in NAMES:
        raise UsageError(f"no way of running is called {which!r}: give a function, or one of {', '.join(NAMES)}")
    if which == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device to run on")
    if which in ("cpu", "cuda"):
        return Way(which, *_copies(fn, inputs, device=torch.device(which)))
    if which == "float64":
        return Way(which, *_copies(fn, inputs, dtype=torch.float64))
    called, copied, module = _copies(fn, inputs)
    if which == "batch":
        return Way(which, _in_halves(called, copied), copied, module, operators=False)
    if which == "compiled":
        return Way(which, torch.compile(called), copied, module, operators=False)
    if which == "graph":
        from unstall.fix.graphed import graphed

        return Way(which, graphed(called), copied, module, operators=False)
    return Way(which, called, copied, module)


def _device_of(module: torch.nn.Module) -> torch.device | None:
    return next((each.device for each in module.parameters()), None)


def as_given(fn: Function, inputs: Sequence[object]) -> Way:
    """Returns the way in which the user runs the function."""
    return Way("as given", *_copies(fn, inputs))


def _copies(
    fn: Function, inputs: Sequence[object], device: torch.device | None = None, dtype: torch.dtype | None = None
) -> tuple[Function, tuple[object, ...], torch.nn.Module | None]:
    """Returns copies of a function and its arguments, and of the module that it is or belongs to."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        to = dtype if tensor.is_floating_point() else None
        return tensor.detach().clone().to(device=device, dtype=to).requires_grad_(tensor.requires_grad)

    def moved(module: torch.nn.Module) -> torch.nn.Module:
        return copy.deepcopy(module).to(device=device, dtype=dtype)

    copied = tuple(moved(each) if isinstance(each, torch.nn.Module) else map_tensors(each, changed) for each in inputs)
    owner = getattr(fn, "__self__", None)
    if isinstance(fn, torch.nn.Module):
        module = moved(fn)
        return module, copied, module
    if isinstance(owner, torch.nn.Module):
        module = moved(owner)
        return getattr(module, fn.__name__), copied, module
    return fn, copied, None


def _in_halves(fn: Function, inputs: Sequence[object]) -> Function:
    """Returns a function that calls `fn` with each half of the batch, and joins the results.

    Raises:
        UsageError: no argument has a first dimension of two or more.
    """
    sizes = [len(each) for value in inputs for each in _tensors(value) if each.dim()]
    if not sizes or sizes[0] < 2:
        raise UsageError("a batch of one cannot be split: the first tensor among the arguments has its first dimension")
    batch, middle = sizes[0], sizes[0] // 2

    def part(value: object, of: slice) -> object:
        if isinstance(value, torch.nn.Module):
            return value
        return map_tensors(value, lambda each: each[of] if each.dim() and len(each) == batch else each)

    def halves(*values: object) -> list[torch.Tensor]:
        parts = [
            tensors_in(fn(*(part(value, of) for value in values))) for of in (slice(0, middle), slice(middle, None))
        ]
        return [torch.cat(each) if each[0].dim() else sum(each) for each in zip(*parts, strict=True)]

    return halves


def _tensors(value: object) -> list[torch.Tensor]:
    return [] if isinstance(value, torch.nn.Module) else tensors_in(value)
