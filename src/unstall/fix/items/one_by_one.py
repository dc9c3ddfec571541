"""Small items through a function as a plain loop has it: each result is there before the next call.

The host is what takes the time then, and nothing may be added to it: here every µs counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.items.results import to_pinned
from unstall.fix.tensors.accelerator import Accelerator, is_there
from unstall.fix.tensors.nesting import map_tensors
from unstall.fix.tensors.parts import bytes_of


@dataclass(slots=True)
class StreamMapCounters:
    """What a `stream_map` has done so far."""

    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def on_and_back(
    fn: Callable[[Any], Any], accelerator: Accelerator, counters: StreamMapCounters, *, refills: bool, pinned: bool
) -> Callable[[Any], Any]:
    """`fn` for items on the host, with results on the host, in pinned memory or not. What waits for all that an item
    needs is the copy back; where there is none, and `refills`, so that an item's pinned memory may be filled anew as
    soon as the program goes on, this does."""
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

    def one(item: Any) -> Any:
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
    fn: Callable[[Any], Any], device: torch.device, counters: StreamMapCounters, *, back: bool
) -> Callable[[Any], Any]:
    """`fn` where the device has no streams, or is not there at all: items then come as they are. Results are copies, as
    from any device, and only those that come `back` leave autograd: the function may write to what it gave before, and
    nothing tells memory that it keeps from memory that it made just now."""
    there = is_there(device)

    def back_here(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to("cpu", copy=True)

    keep = back_here if back else torch.clone

    def one(item: Any) -> Any:
        result = fn(map_tensors(item, lambda tensor: tensor.to(device)) if there else item)
        counters.items += 1
        return map_tensors(result, keep)

    return one
