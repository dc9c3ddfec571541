"""Storages made without tensors, as for copies and saved files: of CUDA, torch's own code in a CPU build makes none."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def install(torch: ModuleType, shim: ModuleType) -> None:
    """Lets `torch.UntypedStorage` be made on virtual devices, and be resized there."""
    storage = torch.UntypedStorage
    make, resize = storage.__new__, storage.resize_

    def new(kind: type, *arguments: Any, **named: Any) -> Any:
        device = named.get("device")
        if device is None or torch.device(device).type != "cuda":
            return make(kind, *arguments, **named)
        size = arguments[0] if arguments else named.get("size", 0)
        if isinstance(size, int):
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        values = torch.tensor(list(size), dtype=torch.uint8, device=device)
        return values.untyped_storage()

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return resize(self, size)
        shim.resize_storage(self, size)
        return self

    storage.__new__ = staticmethod(new)
    storage.resize_ = resize_
