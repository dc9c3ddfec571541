"""The adapter to torch on devices that are neither the CPU nor CUDA devices, for example Intel's devices (xpu) and
Apple's devices (mps)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from unstall.measuring.adapters.torch_cpu import TorchCpu

_UNKNOWN_CACHE_BYTES = 128 << 20  # larger than the cache of any of them


class TorchOther(TorchCpu):
    """Adapter for torch on a device that is neither the CPU nor a CUDA device. A call of torch
    returns when its work is in the device's queue.

    Device time is measured by events with timing. It is not measured if the device has none.
    """

    asynchronous = True

    def __init__(self, kind: str, index: int | None = None) -> None:
        super().__init__()
        self.device = self.torch.device(kind, index) if index is not None else self.torch.device(kind)
        self.name = f"torch on {self.device}"
        self.module: ModuleType = self.torch.get_device_module(self.device)

    @property
    def device_name(self) -> str:
        told = getattr(self.module, "get_device_name", None)
        return str(told(self.device)) if told is not None else str(self.device)

    @property
    def cache_bytes(self) -> int:
        return _UNKNOWN_CACHE_BYTES

    def synchronize(self) -> None:
        self.module.synchronize()

    def flusher(self) -> Callable[[], None] | None:
        buffer = self.torch.empty(2 * self.cache_bytes, dtype=self.torch.uint8, device=self.device)
        return lambda: buffer.zero_()

    def event(self) -> Any | None:
        kind = getattr(self.module, "Event", None) or getattr(getattr(self.module, "event", None), "Event", None)
        if kind is None:
            return None
        event = kind(enable_timing=True)
        event.record()
        return event

    def between_ns(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) * 1e6
