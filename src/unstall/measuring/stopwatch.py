"""`Stopwatch` times a block of code, including the work that the block gives to devices.

    with unstall.Stopwatch("ten products"):
        for _ in range(10):
            y = x @ x

Before the block, a stopwatch waits for earlier work of the devices. At the end of the block, it
waits for the block's work. The line that it prints says how long the wait at the end took. If there
was no wait, the whole time was spent on the host.
"""

from __future__ import annotations

import sys
import warnings
from types import ModuleType, TracebackType
from typing import Self, TypeVar

from unstall.guest.instants import for_program

_Result = TypeVar("_Result")

_AT_ONCE_NS = 20_000  # a wait with nothing to wait for is shorter. On a slow host, it is shorter than two others


class Stopwatch:
    """Times a `with` block, including the work that the block gives to devices.

        with unstall.Stopwatch("ten products") as watch:
            for _ in range(10):
                y = x @ x
        print(watch.seconds)

    Several threads may use stopwatches at the same time, each one of its own.

    Args:
        description: The beginning of the printed line.
        show: Whether to print a line at the end of the block.

    Attributes:
        seconds: The time of the block. It is set at the end of the block.
        waited_seconds: The part of `seconds` that was spent at the end of the block, waiting for devices.
    """

    def __init__(self, description: str = "Done", *, show: bool = True) -> None:
        self.description = description
        self.seconds = 0.0
        self.waited_seconds = 0.0
        self._show = show
        self._results: list[object] = []
        self._began = 0
        self._at_once_ns = _AT_ONCE_NS

    def wait_for(self, result: _Result) -> _Result:
        """Makes the stopwatch wait for `result` at the end of the block. Frameworks such as JAX
        need this, because the stopwatch cannot wait for all their work, but only for results.

        Returns:
            The argument `result`, unchanged.
        """
        self._results.append(result)
        return result

    def __repr__(self) -> str:
        return f"Stopwatch({self.description!r}: {self.seconds:.4g} sec)"

    def __enter__(self) -> Self:
        _wait([])
        self._results.clear()
        self._began = for_program()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pending = _is_pending()
        returned = for_program()
        waited = _wait(self._results)
        ended = for_program()
        _wait(self._results)
        self._at_once_ns = max(_AT_ONCE_NS, 2 * (for_program() - ended))
        self.seconds, self.waited_seconds = (ended - self._began) / 1e9, (ended - returned) / 1e9
        unwaited = "jax" in sys.modules and _is_used_jax() and not self._results
        if kind is not None:
            return
        if unwaited:
            warnings.warn(
                f"{self.description}: nothing was waited for: JAX waits for results alone. Hand them over: "
                "`with Stopwatch() as watch: watch.wait_for(f(x))`",
                stacklevel=2,
            )
        if self._show:
            print(f"{self.description}: {self.seconds:.4f} sec{self._about(waited, pending)}")

    def _about(self, waited: list[str], pending: bool) -> str:
        names = ", ".join(waited)
        if not waited:
            return " on the host: no device was there to wait for" if _has_device() else ""
        if pending or self.waited_seconds * 1e9 > self._at_once_ns:
            return f", of which {self.waited_seconds:.4f} sec waiting for {names}"
        return f"; nothing was left to wait for on {names}"


def _wait(results: list[object]) -> list[str]:
    """Waits for all devices in use, and for the results. Returns the names of the devices and frameworks that this
    function waited for.
    """
    waited = []
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda"):
        for index in _cuda_devices(torch):
            torch.cuda.synchronize(index)
            waited.append(f"cuda:{index}")
        for name in ("mps", "xpu"):
            module = getattr(torch, name, None)
            if module is not None and module.is_available() and getattr(module, "is_initialized", lambda: True)():
                module.synchronize()
                waited.append(name)
    cupy = sys.modules.get("cupy")
    if cupy is not None and hasattr(cupy, "cuda"):
        cupy.cuda.Device().synchronize()
        waited.append("CuPy's device")
    jax = sys.modules.get("jax")
    if jax is not None and results and hasattr(jax, "block_until_ready"):
        jax.block_until_ready(results)
        waited.append("JAX")
    return waited


def _cuda_devices(torch: ModuleType) -> list[int]:
    """Returns the indices of the current CUDA device and of the devices with memory in use. Returns
    an empty list if CUDA is not in use yet.
    """
    cuda = torch.cuda
    if not (cuda.is_available() and cuda.is_initialized()):
        return []
    current = cuda.current_device()
    return [index for index in range(cuda.device_count()) if index == current or cuda.memory_reserved(index)]


def _is_pending() -> bool:
    """Returns whether the current stream of torch on some device in use still has work."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda"):
        return False
    return any(not torch.cuda.current_stream(index).query() for index in _cuda_devices(torch))


def _has_device() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch is not None and hasattr(torch, "cuda") and torch.cuda.is_available())


def _is_used_jax() -> bool:
    """Returns whether JAX has made arrays that are still alive."""
    live = getattr(sys.modules["jax"], "live_arrays", None)
    return live is not None and bool(live())
