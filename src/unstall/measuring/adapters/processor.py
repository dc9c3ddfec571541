"""The name and cache size of the machine's processor, on Linux and macOS."""

from __future__ import annotations

import os
import platform
import re
from functools import lru_cache
from pathlib import Path

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@lru_cache(maxsize=1)
def name() -> str:
    """Returns the processor's model name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def cache_bytes() -> int:
    """Returns the size of the processor's largest cache in bytes, or 0 if it is not known."""
    sizes = [_size(path) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    if not sizes and hasattr(os, "sysconf") and "SC_LEVEL3_CACHE_SIZE" in os.sysconf_names:
        sizes = [os.sysconf("SC_LEVEL3_CACHE_SIZE")]
    return max([0, *sizes])


def _size(path: Path) -> int:
    try:
        found = re.fullmatch(r"(\d+)([KMG]?)", path.read_text().strip())
    except OSError:
        return 0
    return int(found[1]) * _UNITS.get(found[2], 1) if found else 0
