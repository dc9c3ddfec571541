"""The budget of device memory: how much memory torch's caching allocator may reserve."""

from __future__ import annotations

from unstall.budgets.limits import size_like
from unstall.budgets.outcome import OutcomeLine
from unstall.budgets.seen import MOST_LINES, CannotTell, Seen
from unstall.result import Result

_LEAST = 0.01  # of what the line allocates that allocates most: others change nothing
_NOT_RECORDED = (
    "the trace has no figures of the allocator: record it by `unstall run`, or with "
    "torch.profiler.profile(profile_memory=True)"
)


def reserved(result: Result, limit: float) -> Seen | CannotTell:
    """Returns the peak of the device memory that torch's caching allocator reserved.

    `limit` is the limit in bytes. Texts in the result use its unit: decimal (GB) or binary (GiB).
    """
    peak = result.reserved
    if peak is None:
        return CannotTell(_NOT_RECORDED)
    lines = tuple(
        OutcomeLine(where=line.where, text=f"allocates {size_like(limit, line.bytes)} in a step")
        for line in peak.lines[:MOST_LINES]
        if line.bytes >= _LEAST * peak.lines[0].bytes
    )
    return Seen(peak.bytes, size_like(limit, peak.bytes), " at the peak", lines)
