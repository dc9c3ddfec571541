"""What a function takes of the system's memory, where the system counts that."""

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
    """How many pages the system had to give for a call: its share of the process's minor faults over a few."""
    before = page_faults_so_far()
    for _ in range(count):
        call()
    return (page_faults_so_far() - before) / count


def page_faults_so_far() -> int:
    """Of this process, those that no disk is read for; 0 where the system does not say."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_bytes() -> int:
    """Of this process, in memory now; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
