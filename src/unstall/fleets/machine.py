"""How many processors and how much memory this process may use, also in a container: its control group (cgroup v2) may
allow less than the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_UNKNOWN_BYTES = 4 << 30
_OWN_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def processors() -> int:
    """Returns how many processors this process may use."""
    allowed = [len(os.sched_getaffinity(0))]
    for group in _groups():
        with suppress(OSError, ValueError):
            quota, period = map(int, (group / "cpu.max").read_text().split())
            allowed.append(max(1, quota // period))
    return min(allowed)


def available_bytes() -> int:
    """Returns how much memory this process may still use without swapping. Returns 4 GiB if this is not known."""
    left = [_machines_bytes()]
    for group in _groups():
        with suppress(OSError, ValueError):
            most, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
            left.append(max(0, most - used + _reclaimed_bytes(group)))
    return min(left)


def _machines_bytes() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return _UNKNOWN_BYTES


def _reclaimed_bytes(group: Path) -> int:
    """Returns how many bytes of files the group keeps in memory only until somebody else needs it."""
    for line in (group / "memory.stat").read_text().splitlines():
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _groups() -> Iterator[Path]:
    """Yields the folders of the control group of this process, and of the groups that this one is in."""
    with suppress(OSError):
        for line in _OWN_GROUP.read_text().splitlines():
            if line.startswith("0::/"):
                own = Path(line.removeprefix("0::/"))
                yield from (_GROUPS / each for each in (own, *own.parents))
