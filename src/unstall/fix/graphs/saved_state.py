"""Saves and restores the state that a function changes in addition to its result, so that the function can run again
from the same state."""

from __future__ import annotations

import torch

from unstall.fix.tensors.storages import storage_of


class SavedState:
    """The state that a function changes in addition to its result, as it is when this object is made: the contents of
    storages, the states of random number generators, and the tensors in `.grad`.

    Args:
        tensors: The tensors whose storages are saved.
        generators: The random number generators whose states are saved.
        leaves: The tensors whose `.grad` is saved.
    """

    def __init__(
        self, tensors: list[torch.Tensor], generators: list[torch.Generator], leaves: list[torch.Tensor]
    ) -> None:
        whole = {storage_of(tensor): whole_storage(tensor) for tensor in tensors}
        self._memory = [(memory, memory.clone()) for memory in whole.values()]
        self._generators = [(generator, generator.get_state()) for generator in generators]
        self._grads = [(leaf, leaf.grad) for leaf in leaves]

    def restore(self) -> None:
        with torch.no_grad():
            for memory, copy in self._memory:
                memory.copy_(copy)
        for generator, state in self._generators:
            generator.set_state(state)
        self.restore_grads()

    def restore_grads(self) -> None:
        for leaf, grad in self._grads:
            if leaf.grad is not grad:
                leaf.grad = grad

    def now(self) -> list[torch.Tensor]:
        """Returns copies of the contents that the saved storages have now."""
        return [memory.clone() for memory, _ in self._memory]

    def memory(self) -> list[torch.Tensor]:
        return [memory for memory, _ in self._memory]


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the whole storage of a tensor as a flat tensor. The flat tensor has the dtype of `tensor`, or uint8 if
    the size of the storage is not a multiple of the element size."""
    storage = tensor.untyped_storage()
    size, rest = divmod(storage.nbytes(), tensor.element_size())
    dtype, size = (torch.uint8, storage.nbytes()) if rest else (tensor.dtype, size)
    with torch.no_grad():
        return torch.empty(0, dtype=dtype, device=tensor.device).set_(storage, 0, (size,), (1,))
