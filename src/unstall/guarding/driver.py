"""Waits of the host for a real GPU. A wait is a call of CUDA's driver. `_hooks.c` reports each of these calls before
the driver runs it.

If a guard refuses a wait, the driver call returns CUDA_ERROR_NOT_PERMITTED to its caller: torch or another library. The
caller then raises an error. At the end of the `no_sync` block, the guard raises its SyncError in place of the caller's
error. The guard raises the SyncError even if the program caught the caller's error.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

from unstall.errors import SyncError, UsageError
from unstall.guarding import regions
from unstall.guarding.kinds import Kind
from unstall.guarding.state import Pending, guarded, guarded_other
from unstall.guarding.wait import SyncWarning
from unstall.guest.device import when_initialised
from unstall.ways_to_wait import VALUE_BYTES

try:
    from unstall.guarding import _hooks
except ImportError:
    _hooks = None  # type: ignore[assignment]  # built only on 64-bit Linux, where there is a C compiler

LIBRARY = "libcuda.so.1"
_PATIENCE_MS = 1000

# The numbers of _hooks.c.
_STREAM, _EVENT, _DEVICE, _ALLOCATE, _FREE, _CREATE, _ENDS_ROW = range(1, 8)
_TO_DEVICE, _TO_HOST, _ANY, _TO_DEVICE_ASYNC, _TO_HOST_ASYNC, _ANY_ASYNC = range(8, 14)

_KINDS: dict[int, Kind] = {
    _STREAM: "stream",
    _EVENT: "event",
    _DEVICE: "device",
    _ALLOCATE: "malloc",
    _CREATE: "malloc",
    _FREE: "free",
    _TO_DEVICE: "upload",
    _TO_DEVICE_ASYNC: "upload",
    _TO_HOST: "download",
    _TO_HOST_ASYNC: "download",
    _ANY: "download",
    _ANY_ASYNC: "download",
}

FUNCTIONS = {
    "cuStreamSynchronize": (_STREAM, 2000),
    "cuEventSynchronize": (_EVENT, 2000),
    "cuCtxSynchronize": (_DEVICE, 2000),
    "cuCtxSynchronize_v2": (_DEVICE, 13000),
    "cuMemAlloc_v2": (_ALLOCATE, 3020),
    "cuMemAllocPitch_v2": (_ALLOCATE, 3020),
    "cuMemAllocManaged": (_ALLOCATE, 6000),
    "cuMemCreate": (_CREATE, 10020),
    "cuMemSetAccess": (_ENDS_ROW, 10020),
    "cuMemFree_v2": (_FREE, 3020),
    "cuMemUnmap": (_FREE, 10020),
    "cuMemcpyHtoD_v2": (_TO_DEVICE, 3020),
    "cuMemcpyDtoH_v2": (_TO_HOST, 3020),
    "cuMemcpy": (_ANY, 4000),
    "cuMemcpyHtoDAsync_v2": (_TO_DEVICE_ASYNC, 3020),
    "cuMemcpyDtoHAsync_v2": (_TO_HOST_ASYNC, 3020),
    "cuMemcpyAsync": (_ANY_ASYNC, 4000),
}
"""The functions of CUDA's driver that the hooks follow, by name. Most of these functions make the host wait, or may
make it wait. The hooks need the others to tell which call waits. Each value is a pair: the number of the kind of call
as in `_hooks.c`, and the CUDA version that introduced this form of the function. The versions are from cuda.h and
cudaTypedefs.h of CUDA 12 and 13."""


_NEEDED = {_STREAM, _TO_HOST_ASYNC}
_NO_HOOKS = (
    "waits for a real GPU cannot be seen here: unstall's C extensions are not built (they need 64-bit Linux, CPython "
    "with its GIL, and a C compiler)"
)
_NO_POINTERS = "waits for a real GPU cannot be seen here: torch's calls of CUDA's driver were not found in this process"
_MISSED = (
    "a wait in torch's memory allocator was not looked at, since Python could not be asked in time; it is not counted, "
    "and was not refused"
)


class DriverWaits:
    """Reports waits of the CPU for a real GPU to the active guard (`no_sync`). While a guard is active in any thread,
    the hooks in CUDA's driver (`_hooks.c`) call `before` and `after`."""

    def __init__(
        self,
        library: str = LIBRARY,
        operators: Callable[[], Sequence[str]] = tuple,
        own_allocator: Callable[[], bool] = lambda: True,
    ) -> None:
        """Stores the arguments. The first call of `switch(True)` installs the hooks.

        Args:
            library: The file name of CUDA's driver.
            operators: A function that returns the names of all operators of torch, such as "aten::index.Tensor".
            own_allocator: A function that returns whether torch allocates device memory with one of its built-in
                allocators. False if the user plugged in an allocator.
        """
        self._library = library
        self._operators = operators
        self._has_own_allocator = own_allocator
        self._own_allocator = True
        self._names: dict[str, str] = {}  # by the name in C++, "aten::index_Tensor", without the overload
        self._numbers = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._installed = False
        self._unseen: Exception | None = None  # why a guard that was active did not see waits, until it is told
        self._lock = threading.Lock()

    def join_guards(self) -> None:
        """Adds this source to those that report waits to guards. Never raises: CUDA is being initialised for the
        program. If a guard is active and the hooks cannot observe waits, the guard warns when its block is left."""
        try:
            regions.add_source(self)
        except Exception as error:
            self._unseen = error

    def switch(self, on: bool) -> None:
        """Switches the hooks in CUDA's driver (`_hooks.c`) on or off. While they are on, they call `before` at each
        wait. Raises UsageError if the hooks cannot observe waits on this machine."""
        if on:
            self._install()
        if self._installed:
            _hooks.switch(on)

    def settle(self) -> None:
        """Reports each wait that has ended and that was not reported yet to the guard that was active. Issues a
        SyncWarning for each wait that the hooks in CUDA's driver missed, and one if they could see none."""
        ended, missed = _hooks.finished() if self._installed else ([], 0)
        errors = []
        for number, duration_ns in ended:
            try:
                self.after(number, duration_ns)
            except SyncWarning as error:  # if warnings are errors
                errors.append(error)
        if errors:
            raise errors[0]
        for _ in range(missed):
            warnings.warn(SyncWarning(_MISSED), stacklevel=4)
        unseen, self._unseen = self._unseen, None
        if unseen is not None:
            warnings.warn(SyncWarning(f"no wait for a real GPU was counted or refused: {unseen}"), stacklevel=4)

    def before(
        self, kind: int, operators: Sequence[str], size_bytes: int, is_pinned: int, thread: int, here: int
    ) -> int:
        """The hooks in CUDA's driver (`_hooks.c`) call this method before a wait. Returns 0 if the wait is to be
        ignored, -1 if it is refused, or else a positive number, which identifies the wait in the call of `after`.

        Args:
            kind: The number of the kind of driver call, as in `_hooks.c`.
            operators: The torch operators that run in the waiting thread, by their C++ names, outermost first.
            size_bytes: The size in bytes, if the driver call is a copy.
            is_pinned: Whether the host memory is pinned, if the driver call is a copy.
            thread: The `threading.get_ident()` of the waiting thread.
            here: True if the current thread is the waiting thread. But always False if the driver call comes from
                torch's caching allocator.
        """
        meant = _KINDS[kind]
        if meant == "download" and size_bytes <= VALUE_BYTES:
            meant = "value"
        elif meant == "upload" and is_pinned:
            meant = "pinned_upload"
        elif meant in ("malloc", "free") and operators and here and self._own_allocator:
            meant = "library"
        names = [self._names.get(name, name) for name in operators]
        waiting = guarded() if here else guarded_other(thread)
        if waiting is None:
            return 0
        try:
            pending = waiting.begin(meant, names)
        except SyncError as error:
            if waiting.guard.refused is None:
                waiting.guard.refused = error.with_traceback(None)
            return -1
        if pending is None:
            return 0
        number = next(self._numbers)
        self._pending[number] = pending
        return number

    def after(self, number: int, duration_ns: int) -> int:
        """The hooks in CUDA's driver (`_hooks.c`) call this method after a wait. Reports the wait to its guard. Returns
        0.

        Args:
            number: The number that `before` returned for the wait.
            duration_ns: The length of the wait in ns. -1 if the hooks called `before` too late. The wait is then not
                reported.
        """
        pending = self._pending.pop(number, None)
        if pending is not None and duration_ns >= 0:
            pending.waited(duration_ns)
        return 0

    def _install(self) -> None:
        with self._lock:
            if self._installed:
                return
            if _hooks is None:
                raise UsageError(_NO_HOOKS)
            names, self._own_allocator = self._operators(), self._has_own_allocator()
            try:
                found = _hooks.install(self._library, FUNCTIONS, self.before, self.after, _PATIENCE_MS)
            except OSError as error:
                raise UsageError(f"{_NO_POINTERS}: {error}") from None
            if not found >= _NEEDED:
                _hooks.remove()
                raise UsageError(_NO_POINTERS)
            self._names = {name.replace(".", "_"): name.partition(".")[0] for name in names}
            self._installed = True
            atexit.register(_hooks.remove)


def is_refusal(error: BaseException | None) -> bool:
    """Returns whether `error` is the error that torch raises after a guard has refused a wait."""
    return isinstance(error, RuntimeError) and "operation not permitted" in str(error)


def connect(torch: ModuleType) -> None:
    """Makes guards (`no_sync`) observe waits for a real GPU from the moment at which CUDA is initialized. `torch` is
    the imported module torch.

    Does nothing on a virtual GPU, or if this version of torch has no CUDA.
    """
    if torch.version.cuda is None:
        return

    def begin() -> None:
        if _is_loaded(LIBRARY):
            DriverWaits(
                operators=lambda: torch._C._dispatch_get_all_op_names(),
                own_allocator=lambda: torch.cuda.memory.get_allocator_backend() != "pluggable",
            ).join_guards()

    when_initialised(begin)


def _is_loaded(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
