"""`Adapter`: what measuring needs of a framework."""

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
    """A caching allocator's bytes in use, and how often it took memory from the driver or gave it back."""

    in_use: int
    peak: int
    from_driver: int


class Gradient(NamedTuple):
    """An array's gradient: its id, and how often it was written."""

    id: int
    version: int


class Adapter:
    """One framework on one device. The base class is for plain Python and NumPy."""

    name = "Python"
    framework = "Python"
    is_cuda = False
    """Whether CUPTI can see its work."""
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
        """Size of the last cache before memory; 0: not known."""
        from unstall.measuring.adapters.processor import cache_bytes

        return cache_bytes()

    @property
    def computes(self) -> bool:
        """Whether values are computed: a virtual GPU may be told to skip them."""
        machine = simulator() if self.virtual else None
        return machine is None or machine.options.numerics != "skip"

    @property
    def clock(self) -> Callable[[], int]:
        """The program's clock, ns. For work of the host beside a virtual GPU, the machine's: the virtual clock stands
        still while only the host works."""
        return time.monotonic_ns if is_clock_virtual() and not self.virtual else time.perf_counter_ns

    def synchronize(self) -> None:
        """Waits for all work of the device."""

    def wait(self, result: object) -> None:
        """Waits for a call's result and everything else that it began."""
        self.synchronize()

    def until_done(self, run: Callable[[], object]) -> Callable[[], object]:
        """`run`, made to return when its work on the CPU is done."""
        return run

    def holds(self, value: object) -> bool:
        """Whether it is an array of this framework."""
        return isinstance(value, np.ndarray)

    def array(self, name: str, value: Any) -> Array:
        return Array(name, value, "cpu", int(value.nbytes))

    def sample(self, array: Array, most: int = SAMPLED) -> NDArray[np.generic]:
        """Some of its values, on the host."""
        flat = array.value.reshape(-1)
        return np.array(flat[:: max(1, flat.size // most)][:most])

    def version(self, array: Array) -> int | None:
        """A number that changes when the array is written; None if there is none."""
        return None

    def gradient(self, array: Array) -> Gradient | None:
        """The array's gradient, if it has one."""
        return None

    def copied(self, value: Any) -> Any:
        """Another array of the same values, strides and kind."""
        return value.copy(order="K")

    def flusher(self) -> Callable[[], None] | None:
        """A function that flushes the cache by writing twice its size; None if the size is not known."""
        size = self.cache_bytes
        if not size:
            return None
        buffer = np.zeros(2 * size // 8)

        def flush() -> None:
            buffer.__iadd__(1.0)

        return flush

    def event(self) -> Any | None:
        """Records a timed event on the current stream; None if there are no timed events."""
        return None

    def between_ns(self, first: Any, last: Any) -> float:
        """The time between two events that are done, ns."""
        raise NotImplementedError

    def stream(self) -> int | None:
        """The driver's handle of the current CUDA stream."""
        return None

    def spin(self, ns: int) -> bool:
        """Keeps the device busy for about so long. Returns whether that is possible."""
        return False

    def mark(self) -> None:
        """Puts a little work on the current stream, always the same: it identifies the stream."""

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        """A function that launches all work of `run` at once, as often as wanted, always on the same memory.

        None if that is not possible, or if `run` keeps or frees memory. `run` is called once or twice, and its work is
        done as often before this returns.
        """
        return None

    def ops_in_a_row(self, run: Callable[[], object]) -> int | None:
        """How many kernels, copies and memsets `run` puts on the current stream, if they run one after another.

        None if not, or if not known. `run` is called once, and its work is done once if it can be counted.
        """
        return None

    def memory(self) -> MemoryCounters | None:
        """The caching allocator's counters, from a peak that begins now."""
        return None

    def bus_id(self) -> str | None:
        """The PCI bus id of NVIDIA's GPU."""
        return None

    def copying(self) -> tuple[Callable[[], object], int] | None:
        """A copy that is bound by memory, and the bytes that it reads and writes."""
        size = max(64 << 20, 4 * self.cache_bytes)
        source, target = np.ones(size // 8), np.zeros(size // 8)
        return lambda: np.copyto(target, source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        """A product of matrices of that dtype, and its floating-point operations."""
        one = np.ones((1024, 1024), kind)
        return lambda: one @ one, 2 * 1024**3

    def threads(self, count: int | None) -> AbstractContextManager[object]:
        """Uses so many threads on the CPU during a `with` block."""
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
        """Modules whose versions a report names."""
        return ("numpy",)
