"""Splits the time of the host's threads among their events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unstall.timeline.ancestry import open_at
from unstall.timeline.columns import I32, I64, HostKind, Timeline
from unstall.timeline.grouping import groups


def host_time(timeline: Timeline, part_of: I32) -> Iterator[tuple[I64, I64, I64]]:
    """Splits the host's time among its events. At each moment of a thread, the time goes to the open event that began
    last, which is the innermost one.

    Some threads take turns: while one works, the other waits for it. An example is an autograd thread and the thread
    that called backward(). They count as one thread.

    Args:
        timeline: The trace.
        part_of: For each thread of the timeline, the thread of the program that it belongs to. Threads that take turns
            belong to the same one. -1 for threads that belong to none.

    Yields:
        `(start, time, row)` for each thread, or for each set of threads that take turns. These are three arrays with
        one value for each span: its start and its length in ns, and the row number of `timeline.host` that it belongs
        to. The spans are sorted by start.
    """
    host = timeline.host
    of_thread = dict(groups(np.where((host.end > host.start) & (host.kind != HostKind.OVERHEAD), host.thread, -1)))
    for part, threads in groups(part_of.astype(np.int64)):
        alone = [[thread] for thread in threads.tolist()] if part < 0 else [threads.tolist()]
        for each in alone:
            rows = [of_thread[thread] for thread in each if thread in of_thread]
            if len(rows) > 1:
                together = np.concatenate(rows)
                rows = [together[host.start[together].argsort(kind="stable")]]
            if rows:
                time, row = open_at(rows[0], host.start, host.end)
                spent = row[:-1] >= 0
                yield time[:-1][spent], (time[1:] - time[:-1])[spent], row[:-1][spent]
