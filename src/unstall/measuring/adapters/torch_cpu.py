"""The adapter to torch on the CPU. This adapter is the base class of the adapters to torch's other devices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters.adapter import SAMPLED, Adapter, Array, Gradient


class TorchCpu(Adapter):
    """Adapter for torch on the CPU. A call of torch returns after its work is done."""

    name = "torch on the CPU"
    framework = "torch"

    def __init__(self) -> None:
        self.torch: ModuleType = sys.modules["torch"]
        self.device: object = self.torch.device("cpu")

    def holds(self, value: object) -> bool:
        return isinstance(value, self.torch.Tensor)

    def array(self, name: str, value: Any) -> Array:
        return Array(name, value, str(value.device), int(value.numel() * value.element_size()))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        torch = self.torch
        with torch.no_grad():
            flat = array.value.detach()
            if flat.layout is not torch.strided or flat.is_quantized or flat.is_meta:
                return np.zeros(0)
            flat = (torch.view_as_real(flat) if flat.is_complex() else flat).reshape(-1)
            some = flat[:: max(1, flat.numel() // most)][:most].cpu()
            # numpy may lack the dtype, such as bfloat16. Float64 holds all its values, subnormal ones too.
            kept: NDArray[np.generic] = (some.double() if some.is_floating_point() else some).numpy().copy()
            return kept

    def version(self, array: Array) -> int | None:
        try:
            return int(array.value._version)
        except RuntimeError:  # inference tensors have no version
            return None

    def gradient(self, array: Array) -> Gradient | None:
        gradient = array.value.grad if array.value.is_leaf else None
        return None if gradient is None else Gradient(id(gradient), self.version(Array("", gradient, "", 0)) or 0)

    def copied(self, value: Any) -> Any:
        kept = value.detach()
        copy = kept.clone()
        strided = kept.layout is self.torch.strided and not kept.is_nested and kept.numel()
        if strided and copy.stride() != kept.stride():  # the tensor has gaps or overlaps
            size = 1 + sum((size - 1) * stride for size, stride in zip(kept.shape, kept.stride(), strict=True))
            copy = kept.as_strided((size,), (1,)).clone().as_strided(kept.shape, kept.stride())
        if isinstance(value, self.torch.nn.Parameter):
            return self.torch.nn.Parameter(copy, value.requires_grad)
        return copy.requires_grad_(value.requires_grad)

    def copying(self) -> tuple[Callable[[], object], int]:
        size = max((64 if self.virtual else 256) << 20, 4 * self.cache_bytes)
        source = self.torch.ones(size // 4, device=self.device)
        target = self.torch.empty_like(source)
        return lambda: target.copy_(source), 2 * size

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        size = 4096 if self.asynchronous and not self.virtual else 1024
        one = self.torch.randn(size, size, device=self.device).to(getattr(self.torch, kind))
        return lambda: one @ one, 2 * size**3

    def threads(self, count: int | None) -> AbstractContextManager[object]:
        return self._threads(count)

    @contextmanager
    def _threads(self, count: int | None) -> Iterator[None]:
        before = self.torch.get_num_threads()
        if count is not None:
            self.torch.set_num_threads(count)
        try:
            yield
        finally:
            if count is not None:
                self.torch.set_num_threads(before)

    def versions(self) -> dict[str, str]:
        cuda = getattr(self.torch.version, "cuda", None)
        return {**super().versions(), **({"cuda": str(cuda)} if cuda else {})}

    def modules(self) -> tuple[str, ...]:
        return ("torch", "triton") if self.is_cuda else ("torch",)
