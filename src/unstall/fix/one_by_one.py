"""Small items through a function as a plain loop has it: each result is there before the next call.

The host is what takes the time then, and nothing may be added to it: here every µs counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.accelerator import Accelerator
from unstall.fix.nesting import map_tensors
from unstall.fix.parts import bytes_of
from unstall.fix.stream_map_results import to_pinned


@dataclass(slots=True)
class Tally:
    """What a `stream_map` has done so far."""

    items: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


def on_and_back(
    fn: Callable[[Any], Any], accelerator: Accelerator, tally: Tally, *, pinned: bool
) -> Callable[[Any], Any]:
    """`fn` for items on the host, with results on the host, in pinned memory or not. What waits for all that an item
    needs is the copy back."""
    device, plain = accelerator.device, torch.Tensor
    waited = False

    def move(tensor: torch.Tensor) -> torch.Tensor:
        tally.bytes_in += bytes_of(tensor)
        return tensor.to(device, non_blocking=True)

    def back(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal waited
        if tensor.device != device:
            return tensor if pinned else tensor.detach().cpu()
        waited = True
        tally.bytes_out += bytes_of(tensor)
        return to_pinned(accelerator, tensor, wait=True) if pinned else tensor.detach().cpu()

    def one(item: Any) -> Any:
        nonlocal waited
        waited = False
        try:
            result = fn(move(item) if type(item) is plain else map_tensors(item, move))
            tally.items += 1
            return back(result) if type(result) is plain else map_tensors(result, back)
        finally:
            if not waited:  # the item's memory may be pinned, and filled anew as soon as the program goes on
                accelerator.current().synchronize()

    return one
