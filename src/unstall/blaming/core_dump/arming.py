"""Sets the environment variables that make CUDA's driver write a core dump when a kernel fails.

The driver reads these variables when the program initialises CUDA. The dump does not contain the device's memory, so it
is small. The process continues after the dump is written. If the user has set variables for core dumps, unstall sets no
variables. The driver does not write a dump of a process that has a CUPTI subscriber.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ENABLE, FILE = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_COREDUMP_FILE"
PROCESS = "process"
_LEFT_OUT = ("nonrelocated_elf_images", "global_memory", "shared_memory", "local_memory", "constbank_memory", "abort")
_WITHOUT_MEMORY = (  # from this version of CUDA on, as cuDriverGetVersion tells it
    (12050, {"CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{each}" for each in _LEFT_OUT)}),
    (12010, {"CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1", "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION": "0"}),
)


def arm(folder: str | None) -> None:
    """Writes the process id of this process to a file in `folder`. The name of this process's core
    dump contains the id.

    This function does not ask for the dump. The environment variables that ask for it are set
    before the process starts.
    """
    (Path(folder or ".") / PROCESS).write_text(str(os.getpid()))


def is_armed(environment: Mapping[str, str]) -> bool:
    """Returns whether a process with the variables in `environment` writes a core dump when a kernel fails."""
    return environment.get(ENABLE) == "1"


def variables(environment: Mapping[str, str], folder: Path, driver: Any = None) -> tuple[dict[str, str], str]:
    """Returns `(variables, reason)` for a core dump.

    `variables` maps names of environment variables to values. A process with these variables writes
    its core dump to `folder`. The dict is empty if the user has already set variables for core
    dumps, or if the driver cannot write a dump without the device's memory. `reason` says why no
    dump will be written. It is "" if a dump will be written.

    Args:
        environment: The environment of this process.
        folder: The folder for the core dump.
        driver: The library of the CUDA driver; None to load the library of this machine.
    """
    if any(name.startswith("CUDA_") and "COREDUMP" in name for name in environment):
        why = f"{ENABLE} is not 1 in your environment, which has other variables of CUDA's core dumps"
        return {}, "" if is_armed(environment) else why
    version = ctypes.c_int()
    try:
        (driver or ctypes.CDLL("libcuda.so.1")).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return {}, "there is no driver of CUDA"
    for since, without_memory in _WITHOUT_MEMORY:
        if version.value >= since:
            return {ENABLE: "1", FILE: str(folder / "core.%p"), **without_memory}, ""
    have = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return {}, f"this driver, of CUDA {have}, writes none without memory; drivers since CUDA 12.1 do"
