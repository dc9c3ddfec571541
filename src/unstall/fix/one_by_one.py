"""Small items through a function as a plain loop has it: each result is there before the next call.

The host is what takes the time then, and nothing may be added to it: here every µs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def one_by_one(
    fn: Callable[[Any], Any], items: Iterator[Any], accelerator: Accelerator, tally: Tally, *, pinned: bool
) -> Iterator[Any]:
    """Results on the host, in pinned memory or not. The copy back waits for all that an item needs, so that the one
    there need not, unless the item's memory is pinned: what waits then may come too late."""
    device, plain = accelerator.device, torch.Tensor

    def move(tensor: torch.Tensor) -> torch.Tensor:
        tally.bytes_in += bytes_of(tensor)
        return tensor.to(device, non_blocking=not tensor.is_pinned())

    def back(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device != device:
            return tensor if pinned else tensor.detach().cpu()
        tally.bytes_out += bytes_of(tensor)
        return to_pinned(accelerator, tensor, wait=True) if pinned else tensor.detach().cpu()

    for item in items:
        result = fn(move(item) if type(item) is plain else map_tensors(item, move))
        tally.items += 1
        result = back(result) if type(result) is plain else map_tensors(result, back)
        yield result
