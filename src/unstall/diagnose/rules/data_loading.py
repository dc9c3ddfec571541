"""Finds lines at which the host waits for the next batch while the device is idle."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.locate.kinds import is_prefetch_wait, named
from unstall.result import Finding
from unstall.what_if.edits.load_ahead import FETCH_NS

_SINGLE = re.compile(r".*_SingleProcessDataLoaderIter")
_PREFETCH = re.compile(r"(.*/)?unstall/fix/batches/")
_WORTH = 0.005  # of the window
_AT_MOST = "; the gain is the most there is: if each batch is then ready in time, and fetched in about 1 ms"


def data_loading(run: Run) -> list[Finding]:
    """Returns a finding for each line that asks a DataLoader for the next batch while the device is idle."""
    if not len(run.activity.input_rows):
        return []  # nothing loads data, so no idle time has that cause
    rows = run.activity.input_rows[run.inside[run.activity.input_rows]]
    gaps = run.gaps_by("input")
    rows = np.union1d(rows, run.gaps.culprit[gaps][run.gaps.culprit[gaps] >= 0]).astype(np.int64)
    lost = run.lost_to("input")
    findings = []
    for group in run.lines(rows):
        exposed = int(lost[group.rows].sum())
        if exposed < _WORTH * run.wall:
            continue
        single = _in_this_process(run, group)
        ahead, short = _ahead(run, group), int(run.host_length[group.rows].mean()) <= FETCH_NS
        alone = short and single and not ahead
        how, fix = _remedy(
            single=single,
            short=short,
            free=run.timeline.meta.free_work,
            ahead=ahead,
            prefetched=bool(run.within(group.rows[:1], _PREFETCH).any()),
            elsewhere=bool(len(run.activity.feeding)),
        )
        in_prefetch = bool(is_prefetch_wait(run.timeline)[group.rows].all())
        edit = None if alone or (short and in_prefetch) else "load-ahead"
        findings.append(
            run.finding(
                "data-loading",
                group,
                title="The device waits for data loading",
                saw=f"{counted(len(group.rows), 'batch request')}; the device idled "
                f"{duration(round(exposed / len(group.rows)))} for each; {how}",
                fix=f"{fix}; move heavy transforms to the device or do them beforehand{_AT_MOST if edit else ''}",
                total_exposed_ns=exposed,
                safe_if="the batches stay the same" if alone else "the dataset can be read from several processes",
                edit=edit,
                confidence="high" if single else "medium",
            )
        )
    return findings


def _remedy(
    *, single: bool, short: bool, free: bool, ahead: bool, prefetched: bool, elsewhere: bool
) -> tuple[str, str]:
    """Returns (why, fix): the reason why the batches of a line come late, and the advice.

    Args:
        single: Whether the DataLoader makes batches in the main process.
        short: Whether the program waits for a batch no longer than fetching a finished one from a worker takes.
        free: Whether what the dataset computes took no time in a simulated run, so that nothing is known of it.
        ahead: Whether a thread already fetches the line's batches in advance. `unstall.prefetch` starts a thread
            that does so, if this saves time.
        prefetched: Whether `unstall.prefetch` is known to fetch the line's batches.
        elsewhere: Whether a thread fetches any batches of the run in advance.
    """
    if single and ahead:
        return (
            "num_workers=0: a thread fetches ahead, but makes each batch itself and competes with the program for the "
            "Python interpreter",
            "DataLoader(num_workers=4 or more, persistent_workers=True, prefetch_factor=4), from which the thread then "
            "fetches; or a dataset that makes whole batches in one call",
        )
    if ahead:
        return (
            "a thread fetches ahead, but the workers are too slow",
            "more workers than now (num_workers=), persistent_workers=True, prefetch_factor=4",
        )
    if not single:
        return (
            "its workers are too slow, or passing their batches to this process is",
            "more workers than now (num_workers=), pin_memory=True, persistent_workers=True, prefetch_factor=4; larger "
            "batches if each takes far less than a millisecond",
        )
    workers = "DataLoader(num_workers=4 or more, pin_memory=True, persistent_workers=True, prefetch_factor=4)"
    how = "num_workers=0: the main process makes each batch itself"
    if short and free:
        return (
            f"{how}; what its dataset computes by NumPy, Python or other libraries is not in these times",
            "unstall run --host mixed charges that work, and then tells whether workers or larger calls gain more",
        )
    if short:
        return (
            f"{how}, in no more time than fetching it from a worker would take: about 1 ms",
            "make a whole batch in one call instead of item by item: DataLoader(batch_size=None, "
            "sampler=BatchSampler(…)), or __getitems__ of the dataset; take larger batches; or keep a small dataset on "
            "the device and index it there. Workers gain nothing here",
        )
    if prefetched and elsewhere:
        return (
            f"{how}; unstall.prefetch lets it make the first batches of each epoch, to see whether fetching ahead is "
            "safe; if it makes all of them, stats() says why",
            workers,
        )
    if prefetched:
        return f"{how}, and unstall.prefetch fetches no batch ahead: its stats() say why", workers
    return how, (
        f"{workers}; or, if it mostly waits (for files, the network), unstall.prefetch(loader), which fetches ahead "
        "on a thread"
    )


def _ahead(run: Run, group: Group) -> bool:
    fed = np.isin(run.timeline.host.thread[group.rows], run.activity.feeding)
    return bool((fed | is_prefetch_wait(run.timeline)[group.rows]).all())


def _in_this_process(run: Run, group: Group) -> bool:
    """Returns whether an annotation around or inside the group's events names torch's iterator of single-process
    DataLoaders."""
    host = run.timeline.host
    named_so = np.flatnonzero(named(run.timeline, _SINGLE, host.name))
    low, high = host.start[group.rows].min(), host.end[group.rows].max()
    return bool(((host.end[named_so] > low) & (host.start[named_so] < high)).any())
