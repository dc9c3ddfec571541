"""Arguments that share memory: a graph has buffers of its own for each, and a write to one does not reach another."""

from __future__ import annotations

import torch

from unstall.fix.graphs.look.observe import Observation
from unstall.fix.tensors.storages import storage_of


class Sharing:
    """Of a function that was observed: which of its arguments must lie apart, and from what."""

    def __init__(self, seen: Observation) -> None:
        self._places = sorted(seen.written_inputs)
        self._written = set(map(storage_of, seen.written))
        self._read = set(map(storage_of, seen.externals)) if self._places else set()

    def is_safe(self, inputs: list[torch.Tensor]) -> bool:
        """Whether nothing that is written is at the same time another argument, or read beside them."""
        if not self._places and not self._written:
            return True
        found = list(map(storage_of, inputs))
        written = [found[place] for place in self._places]
        return (
            self._written.isdisjoint(found)
            and self._read.isdisjoint(written)
            and all(found.count(storage) == 1 for storage in written)
        )
