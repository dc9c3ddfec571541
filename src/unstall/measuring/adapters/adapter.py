"""`Adapter`: the interface by which measurements use a framework such as torch, CuPy or JAX."""

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
    """An array of some framework, with its name, its device and its size in bytes."""

    name: str
    value: Any
    device: str  # "cpu", "cuda:0"
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """Counters of a caching allocator.

    Attributes:
        in_use: The bytes that are allocated now.
        peak: The largest number of bytes that were allocated at the same time since the counters
            were last read.
        from_driver: How often, so far, the allocator got memory from the driver or returned memory
            to the driver.
    """

    in_use: int
    peak: int
    from_driver: int


class Gradient(NamedTuple):
    """The state of an array's gradient at one moment. If the gradient has changed later, its state
    is another one. `id` is the `id()` of the gradient. `version` is a number that changes when the
    gradient is written to.
    """

    id: int
    version: int


class Adapter:
    """The functions by which measurements use one framework on one device. This base class is for
    plain Python and NumPy.
    """

    name = "Python"
    framework = "Python"
    is_cuda = False
    """Whether CUPTI can record the work on the device."""
    asynchronous = False
    """Whether a call may return before its work is done."""
    virtual = False
    has_current_stream = True
    """Whether calls put their work on the current stream, which the program can choose."""

    @property
    def device_name(self) -> str:
        from unstall.measuring.adapters.processor import name

        return name()

    @property
    def cache_bytes(self) -> int:
        """The size in bytes of the last-level cache of the device (of the CPU if there is no
        device), or 0 if it is not known.
        """
        from unstall.measuring.adapters.processor import cache_bytes

        return cache_bytes()

    @property
    def computes(self) -> bool:
        """Whether calls of the framework compute values. False for a virtual GPU that only works out times."""
        machine = simulator() if self.virtual else None
        return machine is None or machine.options.numerics != "skip"

    @property
    def clock(self) -> Callable[[], int]:
        """The function that reads the program's clock in ns.

        On a virtual GPU, the program's clock is the virtual clock, which does not advance while
        only the host works. So for a function that does not use the virtual GPU, this is the
        machine's real clock.
        """
        return time.monotonic_ns if is_clock_virtual() and not self.virtual else time.perf_counter_ns

    def synchronize(self) -> None:
        """Waits until the adapter's device has done all its work."""

    def wait(self, result: object) -> None:
        """Waits for `result`, which a call of a function returned, and for all other work that this call began."""
        self.synchronize()

    def until_done(self, run: Callable[[], object]) -> Callable[[], object]:
        """Returns a function that calls `run` and returns when the CPU has done the work of the
        call. For most frameworks this is `run` itself. For JAX, whose calls return earlier even on
        the CPU, the function also waits for the result.
        """
        return run

    def holds(self, value: object) -> bool:
        """Returns whether `value` is an array of the adapter's framework."""
        return isinstance(value, np.ndarray)

    def array(self, name: str, value: Any) -> Array:
        return Array(name, value, "cpu", int(value.nbytes))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        """Returns up to `most` evenly spaced elements of `array`, as a flat NumPy array."""
        flat = array.value.reshape(-1)
        return np.array(flat[:: max(1, flat.size // most)][:most])

    def version(self, array: Array) -> int | None:
        """Returns a number that changes whenever `array` is written to. Returns None if the
        adapter's framework has no such number.
        """
        return None

    def gradient(self, array: Array) -> Gradient | None:
        """Returns the state of the gradient of `array`: another state later means that the gradient
        has changed. Returns None if the array has no gradient.
        """
        return None

    def copied(self, value: Any) -> Any:
        """Returns a copy of the array `value`, with the same strides and the same type."""
        return value.copy(order="K")

    def flusher(self) -> Callable[[], None] | None:
        """Returns a function that flushes the last-level cache, by writing to a buffer that is
        twice as large as this cache. Returns None if the size of the cache is not known.
        """
        size = self.cache_bytes
        if not size:
            return None
        buffer = np.zeros(2 * size // 8)

        def flush() -> None:
            buffer.__iadd__(1.0)

        return flush

    def event(self) -> Any | None:
        """Records an event with timing on the current stream, and returns the event. Returns None
        if the adapter's device has no events with timing.
        """
        return None

    def between_ns(self, first: Any, last: Any) -> float:
        """Returns the time in ns from the event `first` to the event `last`. The device must have
        passed both events.
        """
        raise NotImplementedError

    def stream(self) -> int | None:
        """Returns the handle by which CUDA's driver knows the current stream. Returns None if there
        is no CUDA stream.
        """
        return None

    def spin(self, ns: int) -> bool:
        """Launches work that keeps the device busy for `ns` nanoseconds or a little longer. Returns
        False, and launches nothing, if this is not supported on the device.
        """
        return False

    def mark(self) -> None:
        """Launches a tiny op on the current stream. A recording of device work shows by this op
        which stream is the current one.
        """

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        """Captures the work of `run` as a graph of the device, such as a CUDA graph. Returns a
        function that launches all this work by one launch of the graph. The function may be called
        repeatedly; each launch uses the same memory.

        Returns None if the device has no graphs. Also returns None if `run` keeps memory that it
        allocated, or frees memory that it did not allocate. If the device has graphs, `run` is
        called once or twice, and the device executes the work of each call.
        """
        return None

    def ops_in_a_row(self, run: Callable[[], object]) -> int | None:
        """Returns the number of kernels, copies and memsets that `run` launches, if these ops run
        strictly one after another.

        Returns None if some of the ops could overlap, or if the number of ops is not known. Calls
        `run` at most once. If the result is not None, the device has executed the ops once.
        """
        return None

    def memory(self) -> MemoryCounters | None:
        """Returns the counters of the framework's caching allocator, and sets the peak to the
        memory that is in use now. Returns None if the framework has no caching allocator.
        """
        return None

    def bus_id(self) -> str | None:
        """Returns the PCI bus id of the device if it is an NVIDIA GPU, or None for any other device."""
        return None

    def copying(self) -> tuple[Callable[[], object], int] | None:
        """Returns `(copy, bytes)`: a function that makes a large copy within the device's memory,
        and the number of bytes that one call of it reads and writes. Returns None if the framework
        has no such copy.
        """
        size = max(64 << 20, 4 * self.cache_bytes)
        source, target = np.ones(size // 8), np.zeros(size // 8)
        return lambda: np.copyto(target, source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        """Returns `(multiply, flops)`: a function that multiplies two large matrices of dtype
        `kind`, and the number of floating-point operations of one call. Returns None if the
        framework cannot do this.
        """
        one = np.ones((1024, 1024), kind)
        return lambda: one @ one, 2 * 1024**3

    def threads(self, count: int | None) -> AbstractContextManager[object]:
        """Returns a context manager that limits the number of CPU threads to `count` within its
        block. If `count` is None, it does nothing.
        """
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
        """Returns the names of the modules whose versions a report of the measurement shows."""
        return ("numpy",)
