"""Measures how a function uses system memory, if the operating system has counters for it."""

from __future__ import annotations

import os
from pathlib import Path

from unstall.measuring.calls.function_call import FunctionCall

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STATM = Path("/proc/self/statm")


def page_faults(call: FunctionCall, count: int = 3) -> float:
    """Returns the number of minor page faults per call, averaged over `count` calls."""
    before = page_faults_so_far()
    for _ in range(count):
        call()
    return (page_faults_so_far() - before) / count


def page_faults_so_far() -> int:
    """Returns the number of minor page faults of this process so far, or 0 if the number is not known. A minor page
    fault needs no disk read."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_bytes() -> int:
    """Returns how much of this process's memory is in RAM, in bytes, or 0 if this is not known."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
