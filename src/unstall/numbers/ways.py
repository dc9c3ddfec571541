"""The ways in which a function can be run: on another device, in another type, in parts, as a CUDA
graph, or compiled.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

from unstall.errors import UsageError
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.rounding.noise import drawn_in_float32
from unstall.rounding.operators import Call, Operators

Function: TypeAlias = Callable[..., Any]
NAMES = ("repeat", "serial", "cpu", "cuda", "float64", "batch", "graph", "compiled")
_NO_BATCH = "a result has no batch dimension, as a mean over the batch: return a result for each sample"
_WIDER = {torch.float64: torch.complex128}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run a function, such as on another device.

    Attributes:
        name: The name of the way, as the user writes it.
        fn: The function to call. If it holds modules or tensors, these are copies.
        inputs: Copies of the arguments. The user's arguments keep their values and gradients.
        module: The module, if `fn` is a module or a method of a module; None if it is not.
        operators: Whether the function's own operators run. Graphs and compiled functions call
            other operators.
        dtype: The default type during the run. If None, the default type is not changed.
        call: A function that calls each operator. None for a plain call.
        one_at_a_time: Whether each operator waits for the device.
        part: (number of samples that run, number of samples in the batch). None if the whole batch
            runs.
    """

    name: str
    fn: Function
    inputs: tuple[object, ...]
    module: torch.nn.Module | None
    operators: bool = True
    dtype: torch.dtype | None = None
    call: Call | None = None
    one_at_a_time: bool = False
    part: tuple[int, int] | None = None

    @property
    def held(self) -> tuple[object, ...]:
        """The values that `fn` holds, if it is a partial function or a callable object. They are copies."""
        fn = self.fn
        if isinstance(fn, partial):
            return (*fn.args, *fn.keywords.values())
        if isinstance(fn, torch.nn.Module | FunctionType | BuiltinFunctionType | MethodType):
            return ()
        return tuple(getattr(fn, "__dict__", {}).values())

    @staticmethod
    def modules_in(value: object) -> list[torch.nn.Module]:
        """Returns the modules in `value`, an argument: the argument itself if it is a module, or
        the modules in it if it is a container.
        """
        if isinstance(value, torch.nn.Module):
            return [value]
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        return [module for each in values for module in Way.modules_in(each)]

    @contextmanager
    def around(self, watch: Operators | None) -> Iterator[None]:
        """Returns a context manager. A call of `fn` within its block runs in this way.

        `watch` observes the operators that run within the block. None if they need not be observed.
        """
        usual = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype or usual)
        random.seed(0)
        numpy_random: Any = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed(0)
        try:
            with watch if watch is not None else nullcontext():
                yield
        finally:
            torch.set_default_dtype(usual)


def check(which: str | Function) -> None:
    """Checks that a function can be run in the way with the name `which`.

    Raises:
        UsageError: There is no way with this name, or the way is not possible on this machine.
    """
    if callable(which):
        return
    if which not in NAMES:
        raise UsageError(f"no way of running is called {which!r}: give a function, or one of {', '.join(NAMES)}")
    if which == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "there is no CUDA device to run on. On a virtual one: `unstall run --gpu h200 --numerics device SCRIPT`"
        )


def way(which: str | Function, fn: Function, inputs: Sequence[object]) -> Way:
    """Returns the way with the name `which` to run `fn`. If `which` is a function, returns a way
    that runs `which` instead of `fn`.

    Raises:
        UsageError: There is no such way, or the way is not possible on this machine.
    """
    if callable(which):
        is_compiled = which is not _eager(which)  # it would not run compiled while operators are watched
        module = _eager(which) if isinstance(which, torch.nn.Module) else None
        device = next((each.device for each in module.parameters()), None) if module is not None else None
        name = type(module).__name__ if module is not None else getattr(which, "__name__", type(which).__name__)
        return Way(name, *_copies(which, inputs, device=device), operators=not is_compiled)
    if which in ("cpu", "cuda"):
        return Way(which, *_copies(fn, inputs, device=torch.device(which)))
    if which == "float64":
        copies = _copies(fn, inputs, dtype=torch.float64)
        return Way(which, *copies, dtype=torch.float64, call=drawn_in_float32)
    called, copied, module = _copies(fn, inputs)
    if which == "batch":
        return Way(which, _in_halves(called, copied), copied, module, operators=False)
    if which == "compiled":
        return Way(which, torch.compile(called), copied, module, operators=False)
    if which == "graph":
        from unstall.fix.graphed import graphed

        return Way(which, graphed(called), copied, module, operators=False)
    return Way(which, called, copied, module, one_at_a_time=which == "serial")


def _eager(fn: Any) -> Any:
    """If `fn` is a result of torch.compile, returns the function that was compiled. Otherwise returns `fn`."""
    return getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", None) or fn


def as_given(fn: Function, inputs: Sequence[object]) -> Way:
    """Returns the way in which the user runs the function, but without torch.compile.

    Raises:
        UsageError: The function uses modules or weights that are not among its arguments. They
            cannot be copied.
    """
    fn = _eager(fn)
    for name, value in _used_by(fn):
        if isinstance(value, torch.nn.Module) or (isinstance(value, torch.Tensor) and value.requires_grad):
            raise UsageError(f"the function uses {name}, which has parameters: pass it as an argument, to be copied")
        if isinstance(value, torch.optim.Optimizer | torch.Generator):
            raise UsageError(f"the function uses {name}, which has a state: pass it as an argument, to be copied")
    return Way("as given", *_copies(fn, inputs))


def _used_by(fn: Function) -> Iterator[tuple[str, object]]:
    """Yields `(name, value)` for each variable from outside that `fn` uses: global variables, and
    variables of enclosing functions.
    """
    if isinstance(fn, FunctionType):
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # it is not set yet
                continue
        for name in fn.__code__.co_names:
            yield name, fn.__globals__.get(name)


def _copies(
    fn: Function, inputs: Sequence[object], device: torch.device | None = None, dtype: torch.dtype | None = None
) -> tuple[Function, tuple[object, ...], torch.nn.Module | None]:
    """Returns copies of a function and its arguments.

    The function and its arguments are copied in one step. So an object that several of them share
    is copied only once.

    Args:
        fn: The function.
        inputs: The arguments.
        device: The device to which tensors are moved; None if they stay on their devices.
        dtype: The type to which floating-point tensors are converted; None if they keep their
            types.

    Returns:
        `(function, arguments, module)`. `module` is the copied module if the function is a module
        or a method of a module, and None if it is not.
    """
    is_plain = isinstance(fn, FunctionType | BuiltinFunctionType)
    owner: Any = fn.__self__ if isinstance(fn, MethodType) else None if is_plain else fn
    memo: dict[int, Any] = {}
    for tensor in tensors_in(list(inputs)):
        if not isinstance(tensor, torch.nn.Parameter):
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    copied_owner, copied = copy.deepcopy((owner, tuple(inputs)), memo)
    changed = _changed_to(device, dtype)
    modules = [*Way.modules_in(list(copied)), *Way.modules_in(copied_owner)]
    if device is not None or dtype is not None:
        for module in modules:
            module.to(device=device, dtype=dtype)
        copied = tuple(each if isinstance(each, torch.nn.Module) else map_tensors(each, changed) for each in copied)
    whole = copied_owner if isinstance(copied_owner, torch.nn.Module) else None
    if owner is None:
        return fn, copied, None
    return (copied_owner if owner is fn else getattr(copied_owner, fn.__name__)), copied, whole


def _changed_to(device: torch.device | None, dtype: torch.dtype | None) -> Callable[[torch.Tensor], torch.Tensor]:
    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, torch.nn.Parameter):  # of a module, or with it
            return tensor
        to = dtype if tensor.is_floating_point() else _WIDER.get(dtype) if dtype and tensor.is_complex() else None
        return tensor.detach().to(device=device, dtype=to).requires_grad_(tensor.requires_grad)

    return changed


def first_half(fn: Function, inputs: Sequence[object]) -> Way:
    """Returns the way in which the user runs the function, but with only the first half of the batch.

    Raises:
        UsageError: The batch has fewer than two samples, or no tensor among the arguments has a dimension.
    """
    given = as_given(fn, inputs)
    batch = _batch_of(given.inputs)
    half = slice(0, batch // 2)
    parts = tuple(_part(each, batch, half) for each in given.inputs)
    return replace(given, name="first half", inputs=parts, part=(batch // 2, batch))


def _batch_of(inputs: Sequence[object]) -> int:
    sizes = [len(each) for value in inputs for each in _tensors(value) if each.dim()]
    if not sizes or sizes[0] < 2:
        raise UsageError("a batch of one cannot be split: the first tensor among the arguments has its first dimension")
    return sizes[0]


def _part(value: object, batch: int, of: slice) -> object:
    """Returns the slice `of` of the argument `value` along the batch dimension. Returns the
    argument unchanged if it has no batch of the size `batch`.
    """
    if isinstance(value, torch.nn.Module):
        return value
    return map_tensors(value, lambda each: each[of] if each.dim() and len(each) == batch else each)


def _in_halves(fn: Function, inputs: Sequence[object]) -> Function:
    """Returns a function that calls `fn` with each half of the batch, and joins the results.

    Raises:
        UsageError: The batch has fewer than two samples, or no tensor among the arguments has a dimension.
    """
    batch = _batch_of(inputs)
    middle = batch // 2

    def halves(*values: object) -> list[torch.Tensor]:
        returned = [
            fn(*(_part(value, batch, of) for value in values)) for of in (slice(0, middle), slice(middle, None))
        ]
        parts = [tensors_in(each) for each in returned]
        if numbers_in(returned) or any(not one.dim() or len(one) != middle for one in parts[0]):
            raise UsageError(_NO_BATCH)
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    return halves


def numbers_in(value: object) -> list[torch.Tensor]:
    """Returns the Python numbers in `value`, also those in nested containers, as tensors."""
    numbers = (each for each in tree_leaves(value) if isinstance(each, int | float))
    return [torch.tensor(float(each), dtype=torch.float64, device="cpu") for each in numbers]


def _tensors(value: object) -> list[torch.Tensor]:
    return [] if isinstance(value, torch.nn.Module) else tensors_in(value)
