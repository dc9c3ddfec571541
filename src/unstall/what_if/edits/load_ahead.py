"""Each batch is ready when the program asks for it: workers or a thread load ahead, and keep up."""

from __future__ import annotations

import numpy as np

from unstall.locate.kinds import is_data_loading, is_prefetch_wait
from unstall.locate.threads import feeding_threads
from unstall.timeline.columns import Bool
from unstall.timeline.grouping import groups, union
from unstall.what_if.edits.input_speed import loading_faster
from unstall.what_if.place import EditPlace
from unstall.what_if.subject import Subject

FETCH_NS = 1_000_000
"""The host time in ns for fetching a batch that a worker has already made, while the host is busy
with Python.

Medians on an H100's host are 0.6 ms for a batch of one small tensor, 1.1 ms for a batch of four,
and 3.8 ms for a batch of two large tensors. If the host waits meanwhile, fetching takes 0.1 ms
(`python -m benchmarks.ready_batches`). So workers gain nothing if making a batch takes less time
than fetching it.
"""


def apply(subject: Subject, place: EditPlace | None) -> Subject:
    """Returns the run in which each request for a batch takes at most `FETCH_NS`.

    `place` is the line of the requests; None for all. Threads that do nothing but get batches
    become faster by the factor by which all requests together become shorter. If the program waits
    for a thread of `unstall.prefetch`, the requests of that thread become shorter, too.
    """
    timeline = subject.timeline
    all_loading = is_data_loading(timeline)
    loading = all_loading & subject.host_rows(place)
    if not loading.any():
        return subject
    if (loading & is_prefetch_wait(timeline)).any():
        feeding = feeding_threads(timeline, np.flatnonzero(all_loading))
        loading |= all_loading & np.isin(timeline.host.thread, feeding)
    factor = _factor(subject, loading)
    note = (
        "a batch must then be ready whenever it is asked for, and fetching it still takes the host about 1 ms: this is "
        "the most that loading ahead can gain"
    )
    if factor == 1:
        note = "each request takes less than 1 ms already, which is what fetching a ready batch takes the host"
    made = loading_faster(subject, loading, factor)
    return made.with_program(made.program, note)


def _factor(subject: Subject, loading: Bool) -> float:
    """Returns the total time of all requests for batches, divided by what it would be if each took
    at most `FETCH_NS`.

    `loading` is a mask of `timeline.host`: the requests.
    """
    host = subject.timeline.host
    before = after = 0
    for _, mine in groups(host.thread):
        rows = mine[loading[mine]]
        start, end = union(host.start[rows], host.end[rows])
        before, after = before + int((end - start).sum()), after + int(np.minimum(end - start, FETCH_NS).sum())
    return before / max(after, 1)
