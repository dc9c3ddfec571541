"""The items of a `stream_map` that are in flight, and functions that copy the results of items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import torch

from unstall.fix.tensors.accelerator import Accelerator
from unstall.fix.tensors.nesting import Nest, map_tensors, tensors_in
from unstall.fix.tensors.parts import is_simple


@dataclass(slots=True)
class Flight(Generic[Nest]):
    """An item of a `stream_map` that was sent to the device, and its result. The device may still be computing the
    result.

    Attributes:
        number: The number of the item, from 0.
        result: The result.
        on_device: The tensors of the result that the program gets on the device.
        end: An event after the result is complete.
        strategy: The strategy that handled the item: "engines", "streams" or "plain".
    """

    number: int
    result: Nest
    on_device: list[torch.Tensor]
    end: torch.Event
    strategy: str


@dataclass(slots=True)
class Calls:
    """What is known about the calls of a mapped function with items of the same shapes.

    Attributes:
        count: The number of calls.
        keeps: Whether results share memory with tensors that outlive a call.
    """

    count: int = 0
    keeps: bool = False


def to_pinned(accelerator: Accelerator, tensor: torch.Tensor, *, wait: bool) -> torch.Tensor:
    """Copies a tensor from the accelerator to pinned host memory, on the current stream. If `wait` is false, the copy
    may still be running on return. A tensor on another device is returned unchanged. A sparse or otherwise special
    tensor is copied to pageable memory."""
    if tensor.device != accelerator.device:
        return tensor
    if not is_simple(tensor):
        return tensor.detach().cpu()
    source = tensor.detach() if tensor.requires_grad else tensor
    if tensor.is_conj() or tensor.is_neg():
        source = source.resolve_conj().resolve_neg()
    target = torch.empty_like(source, device="cpu", pin_memory=True)
    return target.copy_(source, non_blocking=not wait)


def unpinned(result: Nest) -> Nest:
    """Returns the result, with a copy in pageable memory in place of each tensor in pinned memory."""

    def unpin(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone() if tensor.is_pinned() else tensor

    return map_tensors(result, unpin)


def cloned(result: Nest) -> Nest:
    """Returns the result, with a clone in place of each tensor on the device."""

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone() if tensor.device.type != "cpu" else tensor

    return map_tensors(result, clone)


def shapes_of(item: object) -> tuple[object, ...]:
    """Returns the shapes and dtypes of all tensors in an item, as a hashable key."""
    if type(item) is torch.Tensor:
        return item.shape, item.dtype
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors_in(item))
