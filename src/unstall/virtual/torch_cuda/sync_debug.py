"""`torch.cuda.set_sync_debug_mode`: a warning or an error wherever the host waits for the device."""

from __future__ import annotations

import warnings

from unstall.virtual.torch_cuda.refuse import NotSupportedError
from unstall.virtual.torch_cuda.runtime import Runtime

TEXT = "called a synchronizing CUDA operation"
PROTOTYPE = "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
WARN, ERROR = 1, 2


class SyncDebug:
    """The mode: 0 for none, 1 for a warning, 2 for an error. Waits within operators are the shim's to tell."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._mode = 0
        self._told = False

    def set(self, mode: int) -> None:
        if not self._told:
            self._told = True
            warnings.warn(PROTOTYPE, UserWarning, stacklevel=3)
        if mode not in (0, WARN, ERROR):
            raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
        tell_shim = getattr(self._runtime.shim, "set_sync_debug_mode", None)
        if tell_shim is not None:
            tell_shim(mode)
        elif mode:
            raise NotSupportedError("torch.cuda.set_sync_debug_mode")
        self._mode = mode

    def get(self) -> int:
        return self._mode

    def synchronizing(self) -> None:
        """The host is about to wait for a stream."""
        if self._mode == ERROR:
            raise RuntimeError(TEXT)
        if self._mode == WARN:
            warnings.warn(TEXT, UserWarning, stacklevel=4)


def sync_debug_names(debug: SyncDebug) -> dict[str, object]:
    return {"_cuda_get_sync_debug_mode": debug.get, "_cuda_set_sync_debug_mode": debug.set}
