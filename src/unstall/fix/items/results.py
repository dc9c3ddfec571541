"""Items of a `stream_map` that are under way, their results on the way from the device, and what tells items apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import map_tensors, tensors_in
from unstall.fix.tensors.parts import is_simple


@dataclass(slots=True)
class Flight:
    """An item that was sent off, and what comes back."""

    number: int
    result: Any
    on_device: list[torch.Tensor]  # that the program gets
    end: Any
    strategy: str


@dataclass(slots=True)
class Calls:
    """Of the function, for items of one set of shapes."""

    count: int = 0
    keeps: bool = False  # whether results lie in memory that outlives a call


def to_pinned(accelerator: Accelerator, tensor: torch.Tensor, *, wait: bool) -> torch.Tensor:
    """Copied to pinned memory on the current stream; what is not on the device, as it is."""
    if tensor.device != accelerator.device:
        return tensor
    if not is_simple(tensor):
        return tensor.detach().cpu()
    source = tensor.detach() if tensor.requires_grad else tensor
    if tensor.is_conj() or tensor.is_neg():
        source = source.resolve_conj().resolve_neg()
    target = torch.empty_like(source, device="cpu", pin_memory=True)
    return target.copy_(source, non_blocking=not wait)


def unpinned(result: Any) -> Any:
    return map_tensors(result, lambda tensor: tensor.clone() if tensor.is_pinned() else tensor)


def cloned(result: Any) -> Any:
    return map_tensors(result, lambda tensor: tensor.clone() if tensor.device.type != "cpu" else tensor)


def shapes_of(item: Any) -> Any:
    if type(item) is torch.Tensor:
        return item.shape, item.dtype
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors_in(item))
