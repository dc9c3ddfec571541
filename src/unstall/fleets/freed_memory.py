"""Lets a process keep the memory that it frees, for its next use.

Reading a trace allocates and frees the same large arrays for each rank. By default, glibc returns them to the kernel
each time, which then clears new pages: a quarter of a small rank's CPU time (benchmarks/fleet_peers.py), and a sixth of
the time in which 256 ranks are replayed together.
"""

from __future__ import annotations

from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
WORKER_BYTES = 8 << 20
"""What the worker processes of a job keep: enough for a small rank."""
_LARGE_BYTES = 4 << 20  # larger blocks are returned at once


def keep_freed_memory(most_bytes: int) -> None:
    """Keeps up to `most_bytes` of freed memory in this process. Does nothing if the C library is not glibc."""
    import ctypes  # numpy has imported it

    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)  # the thread that unpacks shares the memory of the thread that reads
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_TRIM_THRESHOLD, most_bytes)
