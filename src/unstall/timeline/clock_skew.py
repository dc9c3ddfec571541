"""Estimates how far the clocks of host and device differ, from effects that seem to precede their causes."""

from __future__ import annotations

import numpy as np

from unstall.timeline.columns import I64, CopyDirection, HostKind, Timeline, WaitKind
from unstall.timeline.copies import is_synchronous
from unstall.timeline.grouping import groups, unique
from unstall.timeline.remembered import remembered

_MOST_NS = 50_000  # further apart, it is another op that was launched or waited for
_FEW = 0.01  # of all pairs
_SHARE = 0.95  # of what comes too early; the rest may be joined wrongly


@remembered
def clock_skew(timeline: Timeline) -> int:
    """Returns how far the clocks of host and device may differ, in ns; 0 if no event shows a difference.

    An op cannot start before its launch begins. A wait cannot return before the awaited op ends. Events that break
    these rules show how far the clocks differ.
    """
    return max(_edge(_starts_early(timeline)), _edge(_returns_early(timeline)), _edge(_copies_return_early(timeline)))


def _edge(early: I64) -> int:
    """Returns the 95 % quantile of the positive values in `early`, in ns. Returns 0 if at most 1 %
    of all values are positive.

    If the clocks differ, many values show it. A few positive values come from events that are
    paired wrongly.
    """
    few = _FEW * len(early)
    early = early[(early > 0) & (early <= _MOST_NS)]
    return int(np.ceil(np.quantile(early, _SHARE))) if len(early) > few else 0


def _starts_early(timeline: Timeline) -> I64:
    launch = timeline.device.launch
    known = launch >= 0
    early: I64 = timeline.host.start[launch[known]] - timeline.device.start[known]
    return early


def _copies_return_early(timeline: Timeline) -> I64:
    """Returns, for each call that copies to the host and waits for the copy, how many ns before the
    end of the copy it returns.
    """
    host, device = timeline.host, timeline.device
    downloads = np.flatnonzero((device.direction == CopyDirection.DEVICE_TO_HOST) & (device.launch >= 0))
    calls = device.launch[downloads]
    chosen = is_synchronous(timeline, calls) & (host.kind[calls] == HostKind.COPY)
    early: I64 = device.end[downloads[chosen]] - host.end[calls[chosen]]
    return early


def _returns_early(timeline: Timeline) -> I64:
    """Returns, for each wait, how many ns before the end of the op for which it waits it returns.

    Waits for a stream count, and waits for a device if there is only one device. A wait is taken to
    be for the last op that was launched before it. If it returns nearer to the end of the op before
    that one, it was for that one, and the value is 0.
    """
    device, waits = timeline.device, timeline.waits
    one = len(unique(device.device)) == 1
    chosen = ((waits.kind == WaitKind.STREAM) & (waits.stream >= 0)) | ((waits.kind == WaitKind.DEVICE) & one)
    chosen = np.flatnonzero(chosen)
    known = np.flatnonzero(device.launch >= 0)
    if not (len(chosen) and len(known)):
        return np.zeros(0, dtype=np.int64)
    whole = waits.kind[chosen] == WaitKind.DEVICE
    parts = [_early(timeline, waits.host[chosen[whole]], known)]
    launched_on = dict(groups(device.stream[known]))
    asked = chosen[~whole]
    for stream, mine in groups(waits.stream[asked]):
        if stream in launched_on:
            parts.append(_early(timeline, waits.host[asked[mine]], known[launched_on[stream]]))
    return np.concatenate(parts)


def _early(timeline: Timeline, calls: I64, ops: I64) -> I64:
    host, device = timeline.host, timeline.device
    begun = host.start[device.launch[ops]]
    order = np.argsort(begun, kind="stable")
    ends = np.append(np.iinfo(np.int64).min // 2, device.end[ops[order]])
    done = np.maximum.accumulate(ends)
    last = np.searchsorted(begun[order], host.start[calls], side="left")
    early: I64 = done[last] - host.end[calls]
    before = host.end[calls] - done[np.maximum(last - 1, 0)]
    early[before < early] = 0
    return early
