"""Lets CUDA's driver write a core dump when a kernel fails.

The driver reads its variables when the program initialises CUDA. They are set in the program, so nothing is called for
it: a process that has initialised CUDA could not be forked any more. A dump has no memory, so it is small; the process
goes on after it. If the user has set such variables, these count.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

_ENABLE, FILE, _FLAGS = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE", "CUDA_COREDUMP_GENERATION_FLAGS"
_LEFT_OUT = ("nonrelocated_elf_images", "global_memory", "shared_memory", "local_memory", "constbank_memory", "abort")
_ENABLED_ON_EXCEPTION = 1  # CU_COREDUMP_ENABLE_ON_EXCEPTION in cuda.h


def is_armed(environment: Mapping[str, str]) -> bool:
    """Returns whether the user has asked CUDA for a core dump."""
    return environment.get(_ENABLE) == "1"


def arm(environment: MutableMapping[str, str], folder: Path) -> None:
    """Asks for a dump in `folder`, unless the environment has variables of CUDA's dumps already."""
    if not any(name.startswith("CUDA_") and "COREDUMP" in name for name in environment):
        environment[_ENABLE] = "1"
        environment[FILE] = str(folder / "core.%p")
        environment[_FLAGS] = ",".join(f"skip_{each}" for each in _LEFT_OUT)


def refusal(environment: Mapping[str, str], driver: Any = None) -> str:
    """Returns why the driver will write no dump, or "". CUDA must be initialised.

    `driver`: the driver's library, by default that of this process.
    """
    if not is_armed(environment):
        return f"{_ENABLE} is not 1 in the environment, which has other variables of CUDA's core dumps"
    try:
        driver = driver or ctypes.CDLL("libcuda.so.1")
        ask, count = driver.cuCoredumpGetAttributeGlobal, driver.cuDeviceGetCount
    except (OSError, AttributeError):
        return "this driver cannot: it has no cuCoredumpSetAttributeGlobal, which is there since CUDA 12.1"
    if count(ctypes.byref(ctypes.c_int())):
        return ""  # not initialised, so not to be asked
    enabled, size = ctypes.c_bool(), ctypes.c_size_t(1)
    error = ask(_ENABLED_ON_EXCEPTION, ctypes.byref(enabled), ctypes.byref(size))
    if error:
        return f"the driver cannot (error {error})"
    return "" if enabled else "the driver was initialised before it could be told to"
