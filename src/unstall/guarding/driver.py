"""The waits of a real GPU: calls of CUDA's driver, which `_hooks.c` announces before they are made.

A wait that is refused returns CUDA_ERROR_NOT_PERMITTED to torch, which raises an error of its own. `no_sync` raises the
guard's error in its place.
"""

from __future__ import annotations

import atexit
import itertools
import threading
from collections.abc import Sequence
from types import ModuleType

from unstall.errors import SyncError
from unstall.guarding import regions
from unstall.guarding.kinds import Kind
from unstall.guarding.state import Pending, on_wait, on_wait_of
from unstall.ways_to_wait import VALUE_BYTES

try:
    from unstall.guarding import _hooks
except ImportError:
    _hooks = None  # type: ignore[assignment]  # built only on 64-bit Linux, where there is a C compiler

LIBRARY = "libcuda.so.1"
_PATIENCE_MS = 1000

# The numbers of _hooks.c.
_STREAM, _EVENT, _DEVICE, _ALLOCATE, _FREE, _TO_DEVICE, _TO_HOST, _ANY = range(1, 9)
_TO_DEVICE_ASYNC, _TO_HOST_ASYNC, _ANY_ASYNC = range(9, 12)

_KINDS: dict[int, Kind] = {
    _STREAM: "stream",
    _EVENT: "event",
    _DEVICE: "device",
    _ALLOCATE: "malloc",
    _FREE: "free",
    _TO_DEVICE: "upload",
    _TO_DEVICE_ASYNC: "upload",
    _TO_HOST: "download",
    _TO_HOST_ASYNC: "download",
    _ANY: "download",
    _ANY_ASYNC: "download",
}

FUNCTIONS: dict[str, int] = {
    "cuStreamSynchronize": _STREAM,
    "cuStreamSynchronize_ptsz": _STREAM,
    "cuEventSynchronize": _EVENT,
    "cuCtxSynchronize": _DEVICE,
    "cuCtxSynchronize_v2": _DEVICE,
    "cuMemAlloc_v2": _ALLOCATE,
    "cuMemAllocPitch_v2": _ALLOCATE,
    "cuMemAllocManaged": _ALLOCATE,
    "cuMemCreate": _ALLOCATE,
    "cuMemFree_v2": _FREE,
    "cuMemUnmap": _FREE,
    "cuMemcpyHtoD_v2": _TO_DEVICE,
    "cuMemcpyHtoD_v2_ptds": _TO_DEVICE,
    "cuMemcpyDtoH_v2": _TO_HOST,
    "cuMemcpyDtoH_v2_ptds": _TO_HOST,
    "cuMemcpy": _ANY,
    "cuMemcpy_ptds": _ANY,
    "cuMemcpyHtoDAsync_v2": _TO_DEVICE_ASYNC,
    "cuMemcpyHtoDAsync_v2_ptsz": _TO_DEVICE_ASYNC,
    "cuMemcpyDtoHAsync_v2": _TO_HOST_ASYNC,
    "cuMemcpyDtoHAsync_v2_ptsz": _TO_HOST_ASYNC,
    "cuMemcpyAsync": _ANY_ASYNC,
    "cuMemcpyAsync_ptsz": _ANY_ASYNC,
}
"""The driver's functions that make the host wait, or may (cuda.h of CUDA 12 and 13)."""


class DriverWaits:
    """What the hooks call, while any thread is guarded."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = library
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._installed = False
        self._lock = threading.Lock()

    def install(self) -> None:
        """Installs the hooks if the driver is loaded. Raises OSError if this process's memory is unreadable."""
        with self._lock:
            if not self._installed:
                found = _hooks.install(self._library, FUNCTIONS, self.before, self.after, _PATIENCE_MS)
                self._installed = found > 0
                atexit.register(_hooks.remove)

    def switch(self, on: bool) -> None:
        """Asks about waits from now on, or no more."""
        if self._installed:
            _hooks.switch(on)

    def settle(self) -> None:
        """Reports waits within torch's allocator."""
        for number, duration_ns in _hooks.finished()[0] if self._installed else ():
            self.after(number, duration_ns)

    def before(self, kind: int, operators: Sequence[str], size_bytes: int, thread: int, here: int) -> int:
        """Returns 0 to let a wait be, -1 to refuse it, or the number by which `after` tells how long it was."""
        meant = _KINDS[kind]
        if meant == "download" and size_bytes <= VALUE_BYTES:
            meant = "value"
        try:
            pending = on_wait(meant, operators) if here else on_wait_of(thread, meant, operators)
        except SyncError:
            return -1  # the guard keeps it
        if pending is None:
            return 0
        number = next(self._numbers)
        self._pending[number] = pending
        return number

    def after(self, number: int, duration_ns: int) -> int:
        pending = self._pending.pop(number, None)
        if pending is not None:
            pending.waited(duration_ns)
        return 0


def is_refusal(error: BaseException | None) -> bool:
    """Returns whether this is the error that torch raises for a wait that was refused."""
    return isinstance(error, RuntimeError) and "operation not permitted" in str(error)


def connect(torch: ModuleType) -> None:
    """Makes the hooks announce waits whenever a thread is guarded. Does nothing if this torch has no CUDA, or the
    hooks are not built."""
    if _hooks is None or torch.version.cuda is None:
        return
    waits = DriverWaits()

    def begin() -> None:
        waits.install()
        regions.add_source(waits)

    if torch.cuda.is_initialized():
        begin()
    else:
        torch.cuda._lazy_call(begin)  # runs once CUDA is initialized
