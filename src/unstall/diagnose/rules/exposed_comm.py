"""Finds collectives that run while the device does no other work."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.communication import Alike, alike
from unstall.diagnose.run import Run
from unstall.figures import counted, duration, share, size
from unstall.locate.collectives import Kind
from unstall.result import Finding
from unstall.timeline.columns import I64
from unstall.timeline.intervals import Intervals

_WORTH = 0.005  # of the window
_MOST_SHOWN = 3  # kinds and groups
# NCCL takes about 10 µs for the smallest message (nccl-tests, one node), in which a link of 100 GB/s moves 1 MiB. So
# the bandwidth of smaller ones would tell latency.
_RATED_BYTES = 1 << 20
_NAMES = {Kind.SEND_RECEIVE: "send/receive", Kind.OTHER: "collective"}


def exposed_comm(run: Run) -> list[Finding]:
    """Returns a finding for each line that starts collectives.

    The finding's exposed time is the time in which a collective of the line runs and its device
    does no other work.
    """
    device = run.timeline.device
    beside = run.work(run.ops_inside & ~run.comm)
    collectives = np.flatnonzero(run.comm & run.ops_inside & (device.launch >= 0))
    findings = []
    for group in run.lines(np.unique(device.launch[collectives]).astype(np.int64)):
        mine = np.intersect1d(run.ops_of(group.rows), collectives)
        exposed, total = run.alone(mine, beside), run.alone(mine, {})
        if exposed < _WORTH * run.wall:
            continue
        findings.append(
            run.finding(
                "exposed-comm",
                group,
                title="Collectives run with no computation beside them",
                saw=f"{counted(len(mine), 'collective')}, {duration(total)} in all, "
                f"{share(exposed, total)} of it with nothing else on the device "
                f"(a rank that arrives early waits inside them): {_kinds(run, mine, beside)}",
                fix="start them earlier and wait later (DDP buckets, gradient_as_bucket_view, FSDP prefetch, "
                "async_op=True); send less (bf16, larger accumulation); look for a slow rank (unstall fleet)",
                safe_if="nothing between start and wait reads the result",
                total_exposed_ns=exposed,
                total_wait_ns=0,
                count=len(mine),
                confidence="medium",
            )
        )
    return findings


def _kinds(run: Run, ops: I64, beside: dict[int, Intervals]) -> str:
    """Returns a text that describes the collectives `ops` by kind and process group.

    The collectives that run alone for the longest time come first. `beside` has the intervals in which each device does
    other work.
    """
    found = sorted(
        ((run.alone(part.ops, beside), part) for part in alike(run.timeline, ops)), key=lambda pair: -pair[0]
    )
    shown = [_described(run, part, alone) for alone, part in found[:_MOST_SHOWN]]
    if len(found) > _MOST_SHOWN:
        rest = sum(len(part.ops) for _, part in found[_MOST_SHOWN:])
        shown.append(f"{rest:,} of other kinds or groups")
    return "; ".join(shown)


def _described(run: Run, part: Alike, alone: int) -> str:
    """Returns a text with the collectives' count, kind, group, bytes, bandwidth and times.

    Unknown values are left out. `alone` is the time in which a collective runs and the device does no other work, in
    ns.
    """
    text = counted(len(part.ops), _NAMES.get(part.kind, part.kind.value))
    if part.ranks > 0:
        text += f" among {counted(part.ranks, 'rank')}"
    if part.group:
        text += f" ({part.group})" if part.ranks > 0 else f" in group {part.group}"
    if part.bytes > 0:
        text += f" of {size(round(part.bytes / len(part.ops)))}{' on average' if len(part.ops) > 1 else ''}"
    text += f", {duration(run.alone(part.ops, {}))}, alone for {duration(alone)}"
    if part.bandwidth is not None and part.bytes >= _RATED_BYTES * len(part.ops):
        text += f", {_gb(part.bandwidth)} GB/s"
        if part.bus_bandwidth is not None:
            text += f" ({_gb(part.bus_bandwidth)} on the bus)"
    return text


def _gb(rate: float) -> str:
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:,.0f}"
