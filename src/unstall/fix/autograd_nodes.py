"""The nodes of autograd's graph that a backward would run through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def nodes_behind(tensors: Iterable[torch.Tensor]) -> Iterator[Any]:
    """Each once, from the tensors' own on."""
    todo = [tensor.grad_fn for tensor in tensors]
    seen: set[Any] = set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
            yield node
