"""What a function does to tensors that were there before it was called, and will be after it."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unstall.fix.tensors.nesting import tensors_in
from unstall.fix.tensors.storages import storage_of, touched_by


class Outside(TorchDispatchMode):
    """Watches one call. `writes`: to memory that is neither its input's nor made in it."""

    def __init__(self, inputs: list[torch.Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self.writes = False
        self._own = {storage_of(tensor) for tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        touched = touched_by(func, args, kwargs or {}, result)
        self._own.update(touched.fresh)
        self.writes = self.writes or touched.barrier or not self._own.issuperset(touched.writes)
        return result

    def keeps(self, result: Any) -> bool:
        """Whether the result lies in such memory."""
        return any(storage_of(tensor) not in self._own for tensor in tensors_in(result))
