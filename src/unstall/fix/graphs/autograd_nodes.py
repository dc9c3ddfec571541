"""The nodes of autograd's graph that a backward would run through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def node_of(tensor: torch.Tensor) -> Any:
    """Its `grad_fn`; None too for a view that autograd refuses to speak about, made where autograd was off of what was
    written to since."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Whether nothing of autograd's made it. Such a view, which `Tensor.is_leaf` raises for, is none."""
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return False


def nodes_behind(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Each once, from the tensors' own on."""
    todo = [node_of(tensor) for tensor in tensors]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
            yield node
