"""The arguments of a call: a key that decides which graphs may serve the call, and the input tensors."""

from __future__ import annotations

import dataclasses
import operator
from collections import UserDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._device import DeviceContext

from unstall.fix.graphs.refusals import Refusal, Refused
from unstall.fix.tensors.nesting import map_tensors

_AUTOCAST = ("cuda", "cpu")
_FLAGS = [
    getattr(torch._C, name)
    for name in (
        "_get_cublas_allow_tf32",
        "_get_cudnn_allow_tf32",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_fp16_accumulation",
        "_get_cudnn_enabled",
        "_get_cudnn_benchmark",
        "_get_cudnn_deterministic",
        "_get_deterministic_algorithms",
        "_get_cudnn_sdp_enabled",
        "_get_flash_sdp_enabled",
        "_get_math_sdp_enabled",
        "_get_mem_efficient_sdp_enabled",
    )
    if hasattr(torch._C, name)
]
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.parameter.Buffer)


Key = tuple[Hashable, ...]


@dataclasses.dataclass(slots=True)
class CallArguments:
    """The arguments of one call, and what `graphed` needs to know about them.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        key: A hashable key. Only calls with equal keys may be served by the same graph.
        tensors: The input tensors, in order. Parameters are not among these tensors, because a graph reads parameters
            in place.
        others: Other objects in the arguments. `key` has the ids of these objects, and guards check their contents.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: Key
    tensors: list[torch.Tensor]
    others: list[object]

    def exchanged(self, tensors: list[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns `(args, kwargs)`: the arguments of the call, with the input tensors replaced by `tensors`."""
        rest = iter(tensors)

        def other(tensor: torch.Tensor) -> torch.Tensor:
            return next(rest) if type(tensor) is torch.Tensor else tensor

        positional = tuple(map_tensors(value, other) for value in self.args)
        return positional, {name: map_tensors(value, other) for name, value in self.kwargs.items()}


def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
    """Returns the arguments of a call with their key and their input tensors.

    Raises:
        Refused: An argument is a tensor of a type that a graph cannot have as an input.
    """
    parts: list[Hashable] = []
    tensors: list[torch.Tensor] = []
    others: list[object] = []
    for value in args:
        _take(value, parts, tensors, others)
    for name, value in kwargs.items():  # in the order given: a function may depend on it
        parts.append(name)
        _take(value, parts, tensors, others)
    parts.extend(modes())
    return CallArguments(args, kwargs, tuple(parts), tensors, others)


def _take(value: object, parts: list[Hashable], tensors: list[torch.Tensor], others: list[object]) -> None:
    if type(value) is torch.Tensor:
        parts.append(tensor_key(value))
        tensors.append(value)
    elif isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN:
            raise Refused(Refusal(f"an argument is a {type(value).__name__}, a tensor that is not a plain one"))
        parts.append(id(value))
        others.append(value)
    elif isinstance(value, (float, complex)):
        parts.append((type(value), repr(value)))  # 0.0 is equal to -0.0
    elif value is None or isinstance(value, (bool, int, str, bytes)):
        parts.append((type(value), value))
    elif isinstance(value, PackedSequence):
        parts.append((PackedSequence, tuple(value.batch_sizes.tolist())))
        for tensor in (value.data, value.sorted_indices, value.unsorted_indices):
            _take(tensor, parts, tensors, others)
    elif isinstance(value, Mapping):
        parts.append((type(value), len(value)))
        for key, item in value.items():
            parts.append((type(key), key))
            _take(item, parts, tensors, others)
        _take_attributes(value, set(value), parts, others)
    elif isinstance(value, (tuple, list)):
        parts.append((type(value), len(value)))
        for item in value:
            _take(item, parts, tensors, others)
        _take_attributes(value, set(), parts, others)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts.append(type(value))
        names = [field.name for field in dataclasses.fields(value)]
        for name in names:
            _take(getattr(value, name), parts, tensors, others)
        _take_attributes(value, set(names), parts, others)
    elif isinstance(value, (torch.dtype, torch.device, torch.memory_format, torch.layout, slice)):
        parts.append(repr(value))
    else:
        parts.append(id(value))
        others.append(value)


def _take_attributes(value: object, items: set[object], parts: list[Hashable], others: list[object]) -> None:
    """Adds a container's attributes to the key. `exchanged` does not replace tensors in attributes, so these tensors
    must be the same objects in each call."""
    for name, held in getattr(value, "__dict__", {}).items():
        if name in items or (name == "data" and isinstance(value, UserDict)):
            continue
        parts.append(name)
        if held is None or isinstance(held, (bool, int, float, str)):
            parts.append(repr(held))
        else:
            parts.append(id(held))
            others.append(held)


def tensor_key(tensor: torch.Tensor) -> Key:
    if tensor.layout != torch.strided:
        raise Refused(Refusal(f"an argument's layout is {tensor.layout}: only strided tensors have a graph's buffers"))
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def modes() -> Key:
    """Returns torch's global settings that affect which kernels run, as a hashable key."""
    return (
        *[torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) for kind in _AUTOCAST],
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        *map(operator.call, _FLAGS),
        _function_modes() if torch._C._len_torch_function_stack() else (),
    )


@contextmanager
def as_in(earlier: Key) -> Iterator[None]:
    """During the block, sets the modes of autograd and autocast to the values that they had when `modes` returned
    `earlier`. A backward pass needs this, because autograd does not run a backward pass with the modes of the call."""
    cached, grad = earlier[len(_AUTOCAST) :][:2]
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(bool(grad)))
        for kind, dtype in zip(_AUTOCAST, earlier, strict=False):
            known = dtype if isinstance(dtype, torch.dtype) else None
            stack.enter_context(torch.autocast(kind, dtype=known, enabled=known is not None))
        stack.enter_context(_autocast_cache(bool(cached)))
        yield


@contextmanager
def _autocast_cache(enabled: bool) -> Iterator[None]:
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(enabled)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


def _function_modes() -> Key:
    """Returns the active function modes of torch. A mode of `with torch.device(…)` is replaced by the name of its
    device."""
    stack = [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]
    return tuple(str(mode.device) if isinstance(mode, DeviceContext) else mode for mode in stack)
