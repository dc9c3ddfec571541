"""Maps a function over small items one by one, for `stream_map`: each result is complete before the function is called
with the next item.

The speed of a loop over small items is limited by the host, so every µs of overhead counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from unstall.fix.items.results import to_pinned
from unstall.fix.tensors.accelerator import Accelerator, is_there
from unstall.fix.tensors.nesting import Nest, map_tensors
from unstall.fix.tensors.parts import bytes_of

Item = TypeVar("Item")


@dataclass(slots=True)
class StreamMapCounters:
    """Counts the items of a `stream_map`, and the bytes that are copied to the device and back."""

    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def on_and_back(
    fn: Callable[..., Any], accelerator: Accelerator, counters: StreamMapCounters, *, refills: bool, pinned: bool
) -> Callable[[object], Any]:
    """Wraps `fn` in a function that takes one item on the host. The wrapper copies the item to the device, calls `fn`
    with the copy, and returns the result on the host. The wrapper returns after the device has computed and copied the
    result.

    Args:
        fn: The function.
        accelerator: The device.
        counters: The counters that the wrapper adds to.
        refills: Whether the program may write to an item's pinned memory right after the call. If True, a call
            waits for the device even if its result needs no copy.
        pinned: Whether results are returned in pinned memory. If False, they are returned in pageable memory.
    """
    device, plain = accelerator.device, torch.Tensor
    waited = exposed = False

    def move(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal exposed
        counters.bytes_in += bytes_of(tensor)
        exposed = exposed or (refills and tensor.is_pinned())
        return tensor.to(device, non_blocking=True)

    def back(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal waited
        if tensor.device != device:
            return tensor if pinned else tensor.detach().cpu()
        waited = waited or tensor.numel() > 0
        counters.bytes_out += bytes_of(tensor)
        return to_pinned(accelerator, tensor, wait=True) if pinned else tensor.detach().cpu()

    def one(item: object) -> Any:
        nonlocal waited, exposed
        waited = exposed = False
        try:
            result = fn(move(item) if type(item) is plain else map_tensors(item, move))
            counters.items += 1
            return back(result) if type(result) is plain else map_tensors(result, back)
        finally:
            if exposed and not waited:
                accelerator.current().synchronize()

    return one


def without_streams(
    fn: Callable[[Item], Nest], device: torch.device, counters: StreamMapCounters, *, back: bool
) -> Callable[[Item], Nest]:
    """Wraps `fn` for a device without streams. Moves items to the device if the device exists.

    Results are copies, because `fn` may keep references to the originals and write to them later. If `back` is true,
    results are copied to the host and detached from autograd.
    """
    there = is_there(device)

    def back_here(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to("cpu", copy=True)

    keep = back_here if back else torch.clone

    def one(item: Item) -> Nest:
        result = fn(map_tensors(item, lambda tensor: tensor.to(device)) if there else item)
        counters.items += 1
        return map_tensors(result, keep)

    return one
