"""How many pages of memory the system had to give for a call, where it counts them."""

from __future__ import annotations

from unstall.bench.call import Call

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def page_faults(call: Call, count: int = 3) -> float:
    """A call's share of the process's minor faults over a few calls."""
    if resource is None:
        return 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count
