"""The adapter to CuPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters.adapter import SAMPLED, Adapter, Array


class Cupy(Adapter):
    """Adapter for CuPy on a CUDA or ROCm device. A call of CuPy returns when its work is in the device's queue."""

    name = "CuPy"
    framework = "CuPy"
    asynchronous = True

    def __init__(self) -> None:
        self.cupy: ModuleType = sys.modules["cupy"]
        runtime = self.cupy.cuda.runtime
        self.is_cuda = not runtime.is_hip
        self.device = self.cupy.cuda.Device()
        self._properties: dict[str, Any] = runtime.getDeviceProperties(self.device.id)
        self._pad: Any = None

    @property
    def device_name(self) -> str:
        name = self._properties.get("name", b"")
        return name.decode() if isinstance(name, bytes) else str(name)

    @property
    def cache_bytes(self) -> int:
        return int(self._properties.get("l2CacheSize", 0))

    def synchronize(self) -> None:
        self.device.synchronize()

    def holds(self, value: object) -> bool:
        return isinstance(value, self.cupy.ndarray)

    def array(self, name: str, value: Any) -> Array:
        return Array(name, value, f"cuda:{value.device.id}", int(value.nbytes))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        flat = array.value.reshape(-1)
        some: NDArray[np.generic] = self.cupy.asnumpy(flat[:: max(1, flat.size // most)][:most])
        return some

    def flusher(self) -> Callable[[], None] | None:
        if not self.cache_bytes:
            return None
        buffer = self.cupy.zeros(2 * self.cache_bytes, dtype=self.cupy.uint8)
        return lambda: buffer.fill(0)

    def event(self) -> object:
        event = self.cupy.cuda.Event()
        event.record()
        return event

    def between_ns(self, first: Any, last: Any) -> float:
        return float(self.cupy.cuda.get_elapsed_time(first, last)) * 1e6

    def stream(self) -> int:
        return int(self.cupy.cuda.get_current_stream().ptr)

    def mark(self) -> None:
        if self._pad is None:
            self._pad = self.cupy.zeros(1, dtype=self.cupy.float32)
        self._pad.fill(1)

    def bus_id(self) -> str | None:
        return str(self.cupy.cuda.runtime.deviceGetPCIBusId(self.device.id)) if self.is_cuda else None

    def copying(self) -> tuple[Callable[[], object], int]:
        source = self.cupy.ones(64 << 20, dtype=self.cupy.float32)
        target = self.cupy.empty_like(source)
        return lambda: self.cupy.copyto(target, source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        one = self.cupy.ones((4096, 4096), dtype=kind)
        return lambda: one @ one, 2 * 4096**3

    def modules(self) -> tuple[str, ...]:
        return ("cupy", "numpy")
