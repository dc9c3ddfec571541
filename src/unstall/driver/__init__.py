"""Intercepts calls to the CUDA driver: a function of unstall is called instead, which calls the
driver (`_pointers.h`).
"""

from __future__ import annotations

import platform
import sys

try:
    from unstall.driver import _pointers
except ImportError:
    _pointers = None  # type: ignore[assignment]  # built only on 64-bit Linux, where there is a C compiler

_PROCESSORS = ("x86_64", "aarch64")


def unavailable() -> str | None:
    """Returns the reason why calls to the CUDA driver cannot be observed on this machine; None if
    they can be observed.
    """
    if sys.platform != "linux" or platform.machine() not in _PROCESSORS:
        here = f"{platform.system()} on {platform.machine()}"
        return f"calls of CUDA's driver can be followed on 64-bit Linux on x86 and ARM, not on {here}"
    if _pointers is None:
        return "the C extension is not built: install a C compiler, then unstall again"
    return None
