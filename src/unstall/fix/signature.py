"""What of a call decides which graph serves it, and the tensors that it passes in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from unstall.fix.nesting import map_tensors
from unstall.fix.refusals import Refusal, Refused

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.parameter.Buffer)


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """The arguments of one call, taken apart.

    `key` is equal for calls that one graph may serve; `tensors` are its inputs in order, parameters not among them:
    they are what a graph reads where it lies. `others` are objects that are no plain values: they are part of the
    key by identity, and what they hold is watched.
    """

    key: tuple[Any, ...]
    tensors: list[torch.Tensor]
    others: list[Any]


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Raises `Refused` for tensors of types that a graph's buffers cannot stand for."""
    parts: list[Any] = []
    tensors: list[torch.Tensor] = []
    others: list[Any] = []
    for value in args:
        _take(value, parts, tensors, others)
    if kwargs:
        for name in sorted(kwargs):
            parts.append(name)
            _take(kwargs[name], parts, tensors, others)
    parts.extend(_modes())
    return Call(tuple(parts), tensors, others)


def _take(value: Any, parts: list[Any], tensors: list[torch.Tensor], others: list[Any]) -> None:
    if type(value) is torch.Tensor:
        parts.append(tensor_key(value))
        tensors.append(value)
    elif isinstance(value, torch.Tensor):
        if type(value) not in _PLAIN:
            raise Refused(Refusal(f"an argument is a {type(value).__name__}, a tensor that is not a plain one"))
        parts.append(id(value))
        others.append(value)
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        parts.append((type(value), value))
    elif isinstance(value, PackedSequence):
        parts.append((PackedSequence, tuple(value.batch_sizes.tolist())))
        for tensor in (value.data, value.sorted_indices, value.unsorted_indices):
            _take(tensor, parts, tensors, others)
    elif isinstance(value, Mapping):
        parts.append((type(value), len(value)))
        for key, item in value.items():
            parts.append(key)
            _take(item, parts, tensors, others)
    elif isinstance(value, (tuple, list)):
        parts.append((type(value), len(value)))
        for item in value:
            _take(item, parts, tensors, others)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts.append(type(value))
        for field in dataclasses.fields(value):
            _take(getattr(value, field.name), parts, tensors, others)
    elif isinstance(value, (torch.dtype, torch.device, torch.memory_format, torch.layout, slice)):
        parts.append(repr(value))
    else:
        parts.append(id(value))
        others.append(value)


def tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout != torch.strided:
        raise Refused(Refusal(f"an argument's layout is {tensor.layout}: only strided tensors have a graph's buffers"))
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def _modes() -> tuple[Any, ...]:
    """What of torch's own state decides which kernels run."""
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch._C._get_cublas_allow_tf32(),
        torch._C._get_cudnn_allow_tf32(),
        torch._C._get_deterministic_algorithms(),
    )


def exchanged(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with other tensors for a call's inputs, in the order of `Call.tensors`."""
    rest = iter(tensors)

    def other(tensor: torch.Tensor) -> torch.Tensor:
        return next(rest) if type(tensor) is torch.Tensor else tensor

    names = sorted(kwargs)
    positional = tuple(map_tensors(value, other) for value in args)
    return positional, {name: map_tensors(kwargs[name], other) for name in names}
