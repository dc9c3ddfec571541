"""What autograd saves for a backward: eager raises where that was written to before the backward came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.graphs.autograd_nodes import nodes_behind
from unstall.fix.tensors.storages import is_plain, storage_of

_NOTHING = torch.empty(0)


@dataclass(frozen=True, slots=True)
class Kept:
    """Places of a call's inputs and differentiable results, and tensors from outside. `anything`: whether something
    is saved at all, without which eager can run a backward twice."""

    inputs: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    outside: tuple[torch.Tensor, ...] = ()
    anything: bool = False

    def of(self, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors of one call, for `save_for_backward`."""
        found = [*(inputs[place] for place in self.inputs), *self.outside, *(results[place] for place in self.results)]
        return found or [_NOTHING] if self.anything else []


def kept_for_backward(outputs: list[torch.Tensor], inputs: list[torch.Tensor], outside: list[torch.Tensor]) -> Kept:
    """Of the graph of autograd that leads to these outputs."""
    saved: set[int] = set()
    anything = False
    for tensor in _saved_tensors(outputs):
        anything = True
        if isinstance(tensor, torch.Tensor) and is_plain(tensor):
            saved.add(storage_of(tensor))
    unique = {storage_of(tensor): tensor for tensor in reversed(outside)}
    return Kept(
        tuple(place for place, tensor in enumerate(inputs) if storage_of(tensor) in saved),
        tuple(place for place, tensor in enumerate(outputs) if storage_of(tensor) in saved - set(unique)),
        tuple(tensor for storage, tensor in unique.items() if storage in saved),
        anything,
    )


def _saved_tensors(outputs: list[torch.Tensor]) -> Iterator[Any]:
    """As they were saved: hooks, as those of checkpoints, are not asked to unpack them."""
    for node in nodes_behind(outputs):
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                held = getattr(node, name)
                yield from (
                    getattr(each, "data", None) for each in (held if isinstance(held, tuple) else (held,)) if each
                )
