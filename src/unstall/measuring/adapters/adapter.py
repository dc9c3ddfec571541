"""What a framework must tell, so that its functions can be timed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstall.measuring.virtual_gpu import is_clock_virtual, keeper

SAMPLED = 1 << 16


@dataclass(frozen=True, slots=True)
class Array:
    """An array that was found, and where it is."""

    name: str
    value: Any
    device: str  # "cpu", "cuda:0"
    bytes: int


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """Of a caching allocator: bytes in use, and how often the driver was asked for memory or given it back."""

    in_use: int
    peak: int
    from_driver: int


class Gradient(NamedTuple):
    """An array's gradient: which it is, and how often it was written to."""

    id: int
    version: int


class Adapter:
    """One framework on one device. This one is of no framework; the others say what differs."""

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
        """Of the last cache before the memory; 0 where that is not known."""
        from unstall.measuring.adapters.processor import cache_bytes

        return cache_bytes()

    @property
    def computes(self) -> bool:
        """Whether there are values, which a virtual GPU may be told to skip."""
        machine = keeper() if self.virtual else None
        return machine is None or machine.options.numerics != "skip"

    @property
    def clock(self) -> Callable[[], int]:
        """The program's clock, ns. Beside a virtual GPU, whose clock stands still while the host alone is at work, the
        machine's for what is the host's alone."""
        return time.monotonic_ns if is_clock_virtual() and not self.virtual else time.perf_counter_ns

    def synchronize(self) -> None:
        """Wait for all that the device was given."""

    def wait(self, result: object) -> None:
        """Wait for a call's result, and whatever else it began."""
        self.synchronize()

    def until_done(self, run: Callable[[], object]) -> Callable[[], object]:
        """`run`, which on the CPU returns when its work is done."""
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
        """A number that changes when the array is written to; None where there is none."""
        return None

    def gradient(self, array: Array) -> Gradient | None:
        """The one that was left with it, if any."""
        return None

    def copied(self, value: Any) -> Any:
        """Another array of the same values, strides and kind."""
        return value.copy(order="K")

    def flusher(self) -> Callable[[], None] | None:
        """What drives all else out of the cache: it writes twice as much as that holds. None where no size is known."""
        size = self.cache_bytes
        if not size:
            return None
        buffer = np.zeros(2 * size // 8)

        def flush() -> None:
            buffer.__iadd__(1.0)

        return flush

    def event(self) -> Any | None:
        """An event recorded now on the current stream; None where there are none that tell the time."""
        return None

    def between_ns(self, first: Any, last: Any) -> float:
        """From one event to another; both are done."""
        raise NotImplementedError

    def stream(self) -> int | None:
        """The driver's handle of the current CUDA stream."""
        return None

    def spin(self, ns: int) -> bool:
        """Keep the device busy for about so long. False where that cannot be done."""
        return False

    def mark(self) -> None:
        """Put a little work on the current stream, by which that is known: always the same."""

    def graph(self, run: Callable[[], object]) -> Callable[[], object] | None:
        """What launches all that `run` puts on the device at once, as often as one likes; each launch writes where the
        first one did. None where that is not known, and where it would not do: `run` keeps what it makes, or lets go of
        what was there. It is called once or twice, and its work is done as often before this returns."""
        return None

    def ops_in_a_row(self, run: Callable[[], object]) -> int | None:
        """How many kernels, copies and memsets `run` puts on the current stream, where each follows on one other; None
        where that is not known. It is called once, and its work is done once, if it can be counted."""
        return None

    def memory(self) -> MemoryCounters | None:
        """The caching allocator's counters, from a peak that begins now."""
        return None

    def bus_id(self) -> str | None:
        """Where NVIDIA's GPU is on the PCI bus."""
        return None

    def copying(self) -> tuple[Callable[[], object], int] | None:
        """A copy that only memory holds up, and the bytes that it reads and writes."""
        size = max(64 << 20, 4 * self.cache_bytes)
        source, target = np.ones(size // 8), np.zeros(size // 8)
        return lambda: np.copyto(target, source), 2 * source.nbytes

    def multiplying(self, kind: str) -> tuple[Callable[[], object], int] | None:
        """A product of matrices of that type, and its operations."""
        one = np.ones((1024, 1024), kind)
        return lambda: one @ one, 2 * 1024**3

    def threads(self, count: int | None) -> AbstractContextManager[object]:
        """Use so many threads on the CPU."""
        if count is None:
            return nullcontext()
        limited = getattr(sys.modules.get("threadpoolctl"), "threadpool_limits", None)
        if limited is None:
            from unstall.errors import UsageError

            raise UsageError(
                "num_threads is for torch; for NumPy import threadpoolctl first, or set OMP_NUM_THREADS "
                "before the program begins"
            )
        return limited(limits=count)  # type: ignore[no-any-return]

    def versions(self) -> dict[str, str]:
        found = {name: getattr(sys.modules.get(name), "__version__", None) for name in self.modules()}
        return {name: str(version) for name, version in found.items() if version}

    def modules(self) -> tuple[str, ...]:
        """Whose versions matter."""
        return ("numpy",)
