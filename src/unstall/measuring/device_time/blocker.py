"""Blocks a CUDA stream, so that the host can fill the stream's queue while the device waits.
Releases the stream at the end of a `with` block, or at a time limit.

The stream waits until the host sets a word of pinned host memory (`cuStreamWaitValue32`, CUDA 8 and
later, on all devices from Volta on). A function that waits for the blocked stream cannot return. So
a thread releases the stream at the time limit.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import Self

from unstall.measuring.adapters import Adapter

_GEQ = 0
_SPIN_NS = 20_000_000  # length of a busy kernel, used if the stream cannot wait
_PORTABLE = 1


class Blocker:
    """Blocks the adapter's current stream during a `with` block, for at most `seconds`.

    Attributes:
        timed_out: Whether the time limit released the stream before the end of the block.
        waits: Whether the stream waits until it is released. If False, at most a busy kernel delays
            the stream for some milliseconds.
    """

    def __init__(self, adapter: Adapter, seconds: float) -> None:
        self._adapter = adapter
        self._seconds = seconds
        self._released = threading.Event()
        self._word: ctypes.c_uint32 | None = None
        self._thread: threading.Thread | None = None
        self.timed_out = False
        self.waits = False
        """Whether the stream really waits for its release. If not, at most a busy kernel delays the stream for some
        milliseconds.
        """

    def __enter__(self) -> Self:
        stream = self._adapter.stream()
        gate = _gate() if stream is not None else None
        if gate is not None and stream is not None and gate.close(stream):
            self.waits = True
            self._word = gate.word
            self._thread = threading.Thread(target=self._let_go_later, name="unstall-blocker", daemon=True)
            self._thread.start()
        else:
            self._adapter.spin(_SPIN_NS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is None:
            return
        self._released.set()
        self._open()
        self._thread.join()

    def _let_go_later(self) -> None:
        if not self._released.wait(self._seconds):
            self.timed_out = True
            self._open()

    def _open(self) -> None:
        if self._word is not None:
            self._word.value = 1


class _Gate:
    """A word of pinned host memory. A stream for which `close` was called waits until the word's value is 1."""

    def __init__(self, driver: ctypes.CDLL, wait: Callable[..., int]) -> None:
        memory, device = ctypes.c_void_p(), ctypes.c_uint64()
        if driver.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(64), _PORTABLE) or not memory.value:
            raise OSError("no pinned memory")
        if driver.cuMemHostGetDevicePointer_v2(ctypes.byref(device), memory, 0):
            raise OSError("pinned memory has no address on the device")
        self.word = ctypes.c_uint32.from_address(memory.value)
        self._address, self._wait = device.value, wait

    def close(self, stream: int) -> bool:
        """Makes the stream wait until the gate's word of memory is set to 1. Returns False if the driver refuses."""
        self.word.value = 0
        failed = self._wait(ctypes.c_void_p(stream), ctypes.c_uint64(self._address), ctypes.c_uint32(1), _GEQ)
        return not failed


@lru_cache(maxsize=1)
def _gate() -> _Gate | None:
    """Returns the gate that all streams of this process use. Returns None if there is no NVIDIA driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        wait = getattr(driver, "cuStreamWaitValue32_v2", None) or driver.cuStreamWaitValue32
        return _Gate(driver, wait)
    except (OSError, AttributeError):
        return None
