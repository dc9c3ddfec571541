"""Computes the cost of each line: the time of the device work that the line launched, the time that the host waited in
the line, and the device's idle time that the line caused."""

from __future__ import annotations

import numpy as np

from unstall.diagnose.run import Run
from unstall.result import IDLE_CAUSES, LineCost
from unstall.timeline.columns import I64


def cost_by_line(run: Run) -> tuple[LineCost, ...]:
    """Returns the cost of each source line of a run, sorted by the sum of device time and idle
    time, costliest first.
    """
    host, device, gaps = run.timeline.host, run.timeline.device, run.gaps
    low, high = run.window
    joined = np.flatnonzero((device.launch >= 0) & run.ops_inside)
    launch = device.launch[joined].astype(np.int64)
    launches = np.unique(launch).astype(np.int64)
    waits = run.activity.waits.row[run.inside[run.activity.waits.row]].astype(np.int64)
    queued, queued_ns = run.queue_waits
    blamed = np.flatnonzero(gaps.culprit >= 0)
    culprit = gaps.culprit[blamed].astype(np.int64)
    rows = np.unique(np.concatenate((launches, waits, culprit)))
    if not len(rows):
        return ()
    places, which = np.unique(run.places.place[rows], return_inverse=True)
    line_of = np.zeros(len(host), dtype=np.int64)
    line_of[rows] = which

    def per_line(at: I64, values: I64) -> I64:
        total = np.zeros(len(places), dtype=np.int64)
        np.add.at(total, line_of[at], values)
        return total

    within = np.minimum(device.end, high)[joined] - np.maximum(device.start, low)[joined]
    device_ns = per_line(launch, within)
    idle_ns = per_line(culprit, gaps.length[blamed])
    wait_ns = per_line(waits, run.host_length[waits]) + per_line(queued, queued_ns)
    ops = per_line(launch, np.ones(len(launch), dtype=np.int64))
    calls = per_line(launches, np.ones(len(launches), dtype=np.int64))
    by_cause = np.zeros((len(places), len(IDLE_CAUSES)), dtype=np.int64)
    np.add.at(by_cause, (line_of[culprit], gaps.cause[blamed]), gaps.length[blamed])
    main_cause = by_cause.argmax(axis=1)
    first_row = np.full(len(places), len(host), dtype=np.int64)
    np.minimum.at(first_row, which, rows)
    order = np.argsort(-(device_ns + idle_ns), kind="stable")
    return tuple(
        LineCost(
            where=run.places.where(int(places[i]), int(first_row[i]), op=None),
            launches=int(calls[i]),
            device_ops=int(ops[i]),
            device_ns=run.per_step(int(device_ns[i])),
            wait_ns=run.per_step(int(wait_ns[i])),
            idle_ns=run.per_step(int(idle_ns[i])),
            idle_cause=IDLE_CAUSES[main_cause[i]] if idle_ns[i] else None,
        )
        for i in order
    )
