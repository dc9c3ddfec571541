"""The nodes of autograd's graph behind tensors, and which tensors they save for a backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.autograd.graph import Node

from unstall.fix.tensors.storages import is_plain, storage_of

_NOTHING = torch.empty(0)


def node_of(tensor: torch.Tensor) -> Node | None:
    """Its `grad_fn`. None also for a view made with autograd off whose base was written to since: autograd raises."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def node_number(tensor: torch.Tensor) -> int | None:
    """The number of the node that made a tensor: later nodes have larger ones. None if no node made it.

    Raises RuntimeError for the views that `node_of` gives None for.
    """
    node = tensor.grad_fn
    return None if node is None else int(node._sequence_nr())


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether no node made it. False for a view that `Tensor.is_leaf` raises for."""
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return False


def nodes_behind(tensors: Iterable[torch.Tensor]) -> Iterator[Node]:
    """Each node once, beginning with the tensors' own."""
    todo = [node_of(tensor) for tensor in tensors]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
            yield node


@dataclass(frozen=True, slots=True)
class SavedForBackward:
    """What autograd saved for a backward: eager raises if that is written to before the backward runs.

    `inputs` and `results` are places among a call's inputs and differentiable results, `outside` are tensors that the
    call neither got nor made. `anything`: if nothing at all is saved, eager can run a backward twice.
    """

    inputs: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    outside: tuple[torch.Tensor, ...] = ()
    anything: bool = False

    def of(self, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors of one call, for `save_for_backward`."""
        found = [*(inputs[place] for place in self.inputs), *self.outside, *(results[place] for place in self.results)]
        return found or [_NOTHING] if self.anything else []


def saved_for_backward(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], outside: list[torch.Tensor]
) -> SavedForBackward:
    """What the graph of autograd that leads to these outputs saved."""
    saved: set[int] = set()
    anything = False
    for tensor in _saved_tensors(outputs):
        anything = True
        if isinstance(tensor, torch.Tensor) and is_plain(tensor):
            saved.add(storage_of(tensor))
    unique = {storage_of(tensor): tensor for tensor in reversed(outside)}
    return SavedForBackward(
        tuple(place for place, tensor in enumerate(inputs) if storage_of(tensor) in saved),
        tuple(place for place, tensor in enumerate(outputs) if storage_of(tensor) in saved - set(unique)),
        tuple(tensor for storage, tensor in unique.items() if storage in saved),
        anything,
    )


def _saved_tensors(outputs: list[torch.Tensor]) -> Iterator[torch.Tensor | None]:
    """As they were saved: hooks, as those of checkpoints, are not asked to unpack them."""
    for node in nodes_behind(outputs):
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                held = getattr(node, name)
                yield from (
                    getattr(each, "data", None) for each in (held if isinstance(held, tuple) else (held,)) if each
                )
