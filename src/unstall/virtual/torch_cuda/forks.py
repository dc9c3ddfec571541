"""Forked children: as with CUDA, they cannot use the devices of their parent; spawned ones can."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from unstall.virtual.torch_cuda.errors import CUDA_DEVICE_TYPE, cuda_error
from unstall.virtual.torch_cuda.keeper import Shim

SET_REQUIRES_DEVICE_INIT = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"
"""torch::utils::set_requires_device_init(DeviceType, bool): factories in C++ then ask for initialisation again."""


class ForkGuard:
    """Knows whether this process was forked after its parent had asked for CUDA."""

    def __init__(self, torch_c: ModuleType, shim: Shim) -> None:
        self._torch_c, self._shim = torch_c, shim
        self._require_init: Callable[[int, bool], object] | None = None
        self._armed = False
        self.is_child = False

    def arm(self) -> None:
        """From now on forked children are refused."""
        if self._armed:
            return
        self._armed = True
        self._shim.refuse_forks()
        library = Path(str(self._torch_c.__file__)).parent / "lib" / "libtorch_python.so"
        with suppress(AttributeError, OSError):
            self._require_init = getattr(ctypes.CDLL(str(library)), SET_REQUIRES_DEVICE_INIT)
        os.register_at_fork(after_in_child=self._after_fork)

    def refuse_child(self, call: str) -> None:
        if self.is_child:
            raise cuda_error(self._torch_c, "initialization error", call)

    def _after_fork(self) -> None:
        self.is_child = True
        if self._require_init is not None:
            self._require_init(CUDA_DEVICE_TYPE, True)
