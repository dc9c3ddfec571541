"""The device waits while the host waits for the next batch."""

from __future__ import annotations

import re

import numpy as np

from unstall.diagnose.activity import named
from unstall.diagnose.run import Group, Run
from unstall.figures import counted, duration
from unstall.result import Finding

_SINGLE = re.compile(r".*_SingleProcessDataLoaderIter")
_A_THREAD = ", or unstall.prefetch(loader), which fetches ahead on a thread"
_WORTH = 0.005  # of the window


def data_loading(run: Run) -> list[Finding]:
    """One finding a line that asks a DataLoader for its next batch."""
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
        how = "num_workers=0: the main process makes each batch itself" if single else "its workers are too slow"
        findings.append(
            run.finding(
                "data-loading",
                group,
                title="The device waits for data loading",
                saw=f"{counted(len(group.rows), 'batch request')}, with the device idle for "
                f"{duration(round(exposed / len(group.rows)))} each; {how}",
                fix="DataLoader(num_workers=4 or more, pin_memory=True, persistent_workers=True, prefetch_factor=4)"
                f"{_A_THREAD if single else ''}; move heavy transforms to the device or do them beforehand",
                total_exposed_ns=exposed,
                safe_if="the dataset can be read from several processes",
                confidence="high" if single else "medium",
            )
        )
    return findings


def _in_this_process(run: Run, group: Group) -> bool:
    """Whether torch's own annotation, around or within these events, names the single-process iterator."""
    host = run.timeline.host
    named_so = np.flatnonzero(named(run.timeline, _SINGLE, host.name))
    low, high = host.start[group.rows].min(), host.end[group.rows].max()
    return bool(((host.end[named_so] > low) & (host.start[named_so] < high)).any())
