"""The adapter to JAX, for all devices."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.adapters.adapter import SAMPLED, Adapter, Array

_CACHE_BYTES = 128 << 20  # XLA does not report the size: this is larger than any device's cache


class Jax(Adapter):
    """Adapter for JAX on one platform. A call of JAX returns before its work is done, even on the
    CPU, because XLA's threads do the work.

    JAX can wait only for the results of a call, not for all work of a device.
    """

    framework = "JAX"
    has_current_stream = False
    asynchronous = True

    def __init__(self, platform: str) -> None:
        self.jax: ModuleType = sys.modules["jax"]
        self.name = f"JAX on {platform}"
        self.is_cuda = platform in ("gpu", "cuda")
        self.asynchronous = platform != "cpu"
        self._devices: list[Any] = self.jax.devices(platform)
        self._last: object = None

    @property
    def device_name(self) -> str:
        return str(self._devices[0].device_kind) if self.asynchronous else super().device_name

    @property
    def cache_bytes(self) -> int:
        return _CACHE_BYTES if self.asynchronous else super().cache_bytes

    def synchronize(self) -> None:
        self.jax.block_until_ready(self._last)
        self._last = None
        self.jax.effects_barrier()

    def wait(self, result: object) -> None:
        self.jax.block_until_ready(result)
        self.jax.effects_barrier()

    def until_done(self, run: Callable[[], object]) -> Callable[[], object]:
        wait = self.jax.block_until_ready
        return lambda: wait(run())

    def holds(self, value: object) -> bool:
        return isinstance(value, self.jax.Array)

    def array(self, name: str, value: Any) -> Array:
        device = next(iter(value.devices()))
        kind = "cuda" if device.platform == "gpu" else device.platform
        return Array(name, value, "cpu" if kind == "cpu" else f"{kind}:{device.id}", int(value.nbytes))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        flat = np.asarray(array.value).reshape(-1)
        return np.array(flat[:: max(1, flat.size // most)][:most])

    def copied(self, value: object) -> object:
        return self.jax.numpy.array(value, copy=True)

    def flusher(self) -> Callable[[], None] | None:
        if not self.asynchronous:
            return super().flusher()
        numpy = self.jax.numpy
        state = [numpy.zeros(2 * self.cache_bytes // 4, dtype=numpy.float32)]
        step = self.jax.jit(lambda x: x + 1, donate_argnums=0)

        def flush() -> None:
            state[0] = self._last = step(state[0])

        return flush

    def mark(self) -> None:
        self._last = self.jax.numpy.zeros(1) + 1

    def copying(self) -> tuple[Callable[[], object], int]:
        numpy = self.jax.numpy
        source = numpy.ones(64 << 20, dtype=numpy.float32)
        step = self.jax.jit(lambda x: x + 1)
        return lambda: step(source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        one = self.jax.numpy.ones((4096, 4096), dtype=kind)
        step = self.jax.jit(lambda x: x @ x)  # an argument: XLA would fold a captured constant
        return lambda: step(one), 2 * 4096**3

    def modules(self) -> tuple[str, ...]:
        return ("jax", "jaxlib")
