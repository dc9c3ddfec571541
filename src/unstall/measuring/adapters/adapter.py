"""`Adapter`: the interface to a framework that measurements use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.virtual_gpu import is_clock_virtual, simulator

SAMPLED = 1 << 16


@dataclass(frozen=True, slots=True)
class Array:
    """An array, its name and its device."""

    name: str
    value: Any
    device: str  # "cpu", "cuda:0"
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """Counters of a caching allocator. `in_use` and `peak` are in bytes. `from_driver` is the number of driver
    allocations and frees."""

    in_use: int
    peak: int
    from_driver: int


class Gradient(NamedTuple):
    """The gradient of an array: the gradient's id, and its version (the number of writes to it)."""

    id: int
    version: int


class Adapter:
    """One framework on one device. The base class is for plain Python and NumPy."""

    name = "Python"
    framework = "Python"
    is_cuda = False
    """Whether CUPTI can record the device's work."""
    asynchronous = False
    """Whether calls return before their work is done."""
    virtual = False
    has_current_stream = True
    """Whether calls go onto a stream that the program chose."""

    @property
    def device_name(self) -> str:
        from unstall.measuring.adapters.processor import name

        return name()

    @property
    def cache_bytes(self) -> int:
        """Size of the last-level cache in bytes, or 0 if not known."""
        from unstall.measuring.adapters.processor import cache_bytes

        return cache_bytes()

    @property
    def computes(self) -> bool:
        """Whether values are computed. A virtual GPU may skip the computation."""
        machine = simulator() if self.virtual else None
        return machine is None or machine.options.numerics != "skip"

    @property
    def clock(self) -> Callable[[], int]:
        """Returns a function that reads the program's clock, in ns. If a virtual GPU is active but this adapter does
        not use the GPU, the function reads the machine's clock: the virtual clock stands still during host work."""
        return time.monotonic_ns if is_clock_virtual() and not self.virtual else time.perf_counter_ns

    def synchronize(self) -> None:
        """Waits for all work of the device."""

    def wait(self, result: object) -> None:
        """Waits for a call's result and all other work that the call began."""
        self.synchronize()

    def until_done(self, run: Callable[[], object]) -> Callable[[], object]:
        """Returns a function that calls `run` and waits for the CPU work of `run`."""
        return run

    def holds(self, value: object) -> bool:
        """Returns whether the value is an array of this framework."""
        return isinstance(value, np.ndarray)

    def array(self, name: str, value: Any) -> Array:
        return Array(name, value, "cpu", int(value.nbytes))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        """Returns up to `most` evenly spaced values of the array, flat, as a NumPy array."""
        flat = array.value.reshape(-1)
        return np.array(flat[:: max(1, flat.size // most)][:most])

    def version(self, array: Array) -> int | None:
        """Returns a number that changes if the array is written to. None if the framework has no such number."""
        return None

    def gradient(self, array: Array) -> Gradient | None:
        """Returns the array's gradient, or None if the array has none."""
        return None

    def copied(self, value: Any) -> Any:
        """Returns a copy with the same strides and type."""
        return value.copy(order="K")

    def flusher(self) -> Callable[[], None] | None:
        """Returns a function that flushes the cache by writing twice the cache's size, or None if the size is not
        known."""
        size = self.cache_bytes
        if not size:
            return None
        buffer = np.zeros(2 * size // 8)

        def flush() -> None:
            buffer.__iadd__(1.0)

        return flush

    def event(self) -> Any | None:
        """Records a timed event on the current stream and returns the event. Returns None if the device has no timed
        events."""
        return None

    def between_ns(self, first: Any, last: Any) -> float:
        """Returns the time between two completed events, in ns."""
        raise NotImplementedError

    def stream(self) -> int | None:
        """Returns the driver's handle of the current CUDA stream, or None."""
        return None

    def spin(self, ns: int) -> bool:
        """Keeps the device busy for about `ns`. Returns False if the device cannot do that."""
        return False

    def mark(self) -> None:
        """Launches a tiny op on the current stream. The record of this op identifies the stream."""

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        """Returns a function that launches all work of `run` as one graph. The function may be called repeatedly. The
        graph always uses the same memory.

        Returns None if there can be no graph, or if `run` keeps or frees memory. Calls `run` once or twice. The device
        also executes the work of each of these calls.
        """
        return None

    def ops_in_a_row(self, run: Callable[[], object]) -> int | None:
        """Returns the number of kernels, copies and memsets that `run` launches, if they all run one after another.

        Returns None if some ops could overlap, or if the number is not known. Calls `run` once. If the ops can be
        counted, the device executes them once.
        """
        return None

    def memory(self) -> MemoryCounters | None:
        """Returns the caching allocator's counters and resets the peak. Returns None if there is no such allocator."""
        return None

    def bus_id(self) -> str | None:
        """Returns the PCI bus id of an NVIDIA GPU, or None."""
        return None

    def copying(self) -> tuple[Callable[[], object], int] | None:
        """Returns a function that makes a memory-bound copy, and the number of bytes that the copy reads and writes."""
        size = max(64 << 20, 4 * self.cache_bytes)
        source, target = np.ones(size // 8), np.zeros(size // 8)
        return lambda: np.copyto(target, source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        """Returns a function that multiplies matrices of dtype `kind`, and its number of floating-point operations."""
        one = np.ones((1024, 1024), kind)
        return lambda: one @ one, 2 * 1024**3

    def threads(self, count: int | None) -> AbstractContextManager[object]:
        """Limits CPU threads to `count` during a `with` block. None: no limit."""
        if count is None:
            return nullcontext()
        limited = getattr(sys.modules.get("threadpoolctl"), "threadpool_limits", None)
        if limited is None:
            from unstall.errors import UsageError

            raise UsageError(
                "num_threads is for torch; for NumPy import threadpoolctl first, or set OMP_NUM_THREADS "
                "before the program begins"
            )
        limits: AbstractContextManager[object] = limited(limits=count)
        return limits

    def versions(self) -> dict[str, str]:
        found = {name: getattr(sys.modules.get(name), "__version__", None) for name in self.modules()}
        return {name: str(version) for name, version in found.items() if version}

    def modules(self) -> tuple[str, ...]:
        """Returns the modules whose versions a report names."""
        return ("numpy",)
