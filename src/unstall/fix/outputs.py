"""A graph's results live in its own memory and change with each replay: what a caller gets are copies of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from unstall.fix.nesting import map_tensors, tensors_in
from unstall.fix.storages import storage_of


class Outputs:
    """How a caller's result is made of a graph's: memory of the graph's is copied; a result that is an argument, or
    a tensor from outside, is that itself. Views of one memory stay views of one memory."""

    def __init__(self, result: Any, inputs: list[torch.Tensor], externals: list[torch.Tensor]) -> None:
        self._result = result
        self._inputs = {storage_of(tensor): place for place, tensor in enumerate(inputs)}
        self._externals = {storage_of(tensor) for tensor in externals}
        counts = Counter(map(storage_of, _unique(tensors_in(result))))
        self._shared = {storage for storage, count in counts.items() if count > 1}
        self._single = (
            result
            if isinstance(result, torch.Tensor) and storage_of(result) not in self._externals | set(self._inputs)
            else None
        )

    def copies(self, inputs: list[torch.Tensor]) -> Any:
        """For a call with these arguments, whose values the graph was replayed on."""
        if self._single is not None:
            return self._single.detach().clone()
        made: dict[int, torch.Tensor] = {}
        bases: dict[int, torch.Tensor] = {}

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in made:
                made[id(tensor)] = self._copied(tensor, inputs, bases)
            return made[id(tensor)]

        return map_tensors(self._result, copy)

    def copy_of(self, tensor: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor:
        """One tensor of the result, on its own."""
        return self._copied(tensor, inputs, {})

    def _copied(self, tensor: torch.Tensor, inputs: list[torch.Tensor], bases: dict[int, torch.Tensor]) -> torch.Tensor:
        storage = storage_of(tensor)
        if storage in self._externals:
            return tensor
        if storage in self._inputs:
            given = inputs[self._inputs[storage]]
            if tensor.shape == given.shape and tensor.stride() == given.stride():
                return given
            return given.as_strided(tensor.shape, tensor.stride(), given.storage_offset() + tensor.storage_offset())
        if storage not in self._shared:
            return tensor.detach().clone()
        if storage not in bases:
            bases[storage] = _typed(tensor).clone()
        return bases[storage].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _typed(tensor: torch.Tensor) -> torch.Tensor:
    storage = tensor.untyped_storage()
    size = storage.nbytes() // tensor.element_size()
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (size,), (1,))


def _unique(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())
