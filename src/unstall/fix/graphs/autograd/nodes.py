"""Finds the autograd nodes that tensors depend on, and the tensors that these nodes save for a backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch.autograd.graph import Node

from unstall.fix.tensors.storages import is_plain, storage_of

_NOTHING = torch.empty(0)


def node_of(tensor: torch.Tensor) -> Node | None:
    """Returns the `grad_fn` of a tensor, the autograd node that made it. Returns None if no node made the tensor, or if
    autograd raises an error. Autograd raises an error for a view that was made with autograd off, if the base of the
    view was written to later."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def node_number(tensor: torch.Tensor) -> int | None:
    """Returns the sequence number of the autograd node that made the tensor, or None if no node made the tensor. Newer
    nodes have larger numbers.

    Raises:
        RuntimeError: The tensor is a view that was made with autograd off, and the base of the view was written to
            later.
    """
    node = tensor.grad_fn
    return None if node is None else int(node._sequence_nr())


def is_leaf(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor is a leaf of autograd. `Tensor.is_leaf` raises an error for some views. For these
    views, returns False."""
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return False


def nodes_behind(tensors: Iterable[torch.Tensor]) -> Iterator[Node]:
    """Yields all autograd nodes that the tensors depend on, including the tensors' own `grad_fn`. Yields each node
    once."""
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
    """The tensors that autograd saved during a call of a function, for the backward pass of this call. In eager
    execution, autograd raises an error if one of these tensors is written to before the backward pass.

    Attributes:
        inputs: The indices of those inputs of the call that were saved.
        results: The indices of those differentiable results of the call that were saved.
        outside: The saved tensors that the call neither received as inputs nor made.
        anything: Whether at least one tensor was saved. If False, eager execution can run a backward pass twice.
    """

    inputs: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    outside: tuple[torch.Tensor, ...] = ()
    anything: bool = False

    def of(self, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the tensors to pass to `ctx.save_for_backward` in a later call of the same function.

        Args:
            inputs: The inputs of the later call.
            results: The differentiable results of the later call.
        """
        found = [*(inputs[place] for place in self.inputs), *self.outside, *(results[place] for place in self.results)]
        return found or [_NOTHING] if self.anything else []


def saved_for_backward(
    outputs: list[torch.Tensor], inputs: list[torch.Tensor], outside: list[torch.Tensor]
) -> SavedForBackward:
    """Returns which of the given tensors autograd saved during a call of a function, for the backward pass of this
    call.

    Args:
        outputs: The differentiable results of the call.
        inputs: The inputs of the call.
        outside: Tensors that the call used, but neither received as inputs nor made.
    """
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
    """Yields the tensors that autograd saved for a backward pass, in the form in which autograd stores them. Does not
    run unpack hooks, such as the hooks of checkpointing."""
    for node in nodes_behind(outputs):
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                held = getattr(node, name)
                yield from (
                    getattr(each, "data", None) for each in (held if isinstance(held, tuple) else (held,)) if each
                )
