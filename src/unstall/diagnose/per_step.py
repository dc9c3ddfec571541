"""Counts by line how often the host waits for a device, puts work on a device, or copies, in a step.

The result has the counts of all steps together, and those of the step with the most: a wait in every tenth step would
not be seen in the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unstall.diagnose.copies import upload_waits
from unstall.diagnose.graphed_checks import is_check
from unstall.diagnose.rules.allocator_churn import calls_for_device_memory
from unstall.diagnose.rules.host_wait import waits_by_way
from unstall.diagnose.run import Group, Run
from unstall.result import Finding, LineCount, StepCount, Where
from unstall.timeline.columns import I64, CopyDirection, DeviceKind, HostKind

_Place: TypeAlias = tuple[str | None, int | None, str | None, str | None]
_OF_UPLOADS = ("pageable-copy", "blocking-pinned-copy", "blocking-copy")
_BETWEEN = (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
_OF_LAUNCHES = ("launch-bound", "tiny-kernels")


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """The calls at one place. `times` has the start of each call.

    If a finding of one of `rules` is at the same place, its advice is used. Otherwise the advice is `fix`.
    """

    group: Group
    times: I64
    rules: tuple[str, ...] = ()
    title: str = ""
    fix: str = ""


def waits_per_step(run: Run, findings: Iterable[Finding]) -> StepCount:
    """Returns how often the host waits for a device in a step.

    An operator that waits counts once, even if several of its driver calls wait. A call outside of any operator counts
    once, and so do consecutive calls of `cudaFree` at one line. The first growth of torch's cache does not count,
    because it does not happen again in later steps.
    """
    parts = [
        *(_Part(group, _calls(run, group.rows), (way.rule,), way.title, way.fix) for way, group in waits_by_way(run)),
        *(
            _Part(group, _calls(run, group.rows), _OF_UPLOADS, "A copy to the device blocks the host")
            for group in run.groups(_inside(run, upload_waits(run)))
        ),
    ]
    waiting = np.concatenate([run.places.operation[part.group.rows] for part in parts] or [np.zeros(0, np.int32)])
    asking = calls_for_device_memory(run)
    asking = asking[~np.isin(run.places.operation[asking], waiting[waiting >= 0])]
    parts += [
        _Part(
            group,
            _stretches(run, group.rows),
            ("allocator-churn",),
            "Device memory is taken from the driver, or given back",
        )
        for group in run.lines(asking)
    ]
    return _counted(run, parts, findings)


def launches_per_step(run: Run, findings: Iterable[Finding]) -> StepCount:
    """Returns how often the host puts work on a device in a step.

    One call that launches a kernel, a graph, a copy or a memset counts once.
    """
    launch = run.timeline.device.launch
    rows = _inside(run, np.unique(launch[launch >= 0]).astype(np.int64))
    start = run.timeline.host.start
    return _counted(run, [_Part(group, start[group.rows], _OF_LAUNCHES) for group in run.lines(rows)], findings)


def copies_per_step(run: Run) -> StepCount:
    """Returns how many copies between host and device a step makes.

    Copies in a graph count each time that the graph is launched.
    """
    device = run.timeline.device
    chosen = (device.kind == DeviceKind.COPY) & np.isin(device.direction, _BETWEEN) & (device.launch >= 0)
    rows = _inside(run, device.launch[chosen].astype(np.int64))
    start = run.timeline.host.start
    return _counted(run, [_Part(group, start[group.rows]) for group in run.lines(rows)], ())


def _inside(run: Run, rows: I64) -> I64:
    return rows[run.inside[rows]]


def _calls(run: Run, rows: I64) -> I64:
    """Returns when the calls in `rows` (host rows) begin, in ns.

    Calls within one operator count once, with the time of the first of them.
    """
    operation = run.places.operation[rows]
    _, first = np.unique(np.where(operation >= 0, operation, rows), return_index=True)
    return run.timeline.host.start[rows[first]]


def _stretches(run: Run, rows: I64) -> I64:
    """Returns when the calls in `rows` (host rows) begin, in ns.

    Calls within one operator count once. So do consecutive driver calls outside of operators, if their stacks are the
    same.
    """
    host = run.timeline.host
    alone = rows[run.places.operation[rows] < 0]
    calls = np.flatnonzero((host.kind >= HostKind.LAUNCH) & (host.kind <= HostKind.CALL))
    at = np.searchsorted(calls, alone)
    before = calls[np.maximum(at - 1, 0)]
    goes_on = (
        (at > 0)
        & np.isin(before, alone)
        & (host.thread[before] == host.thread[alone])
        & (host.stack[before] == host.stack[alone])
    )
    return np.concatenate([_calls(run, np.setdiff1d(rows, alone)), host.start[alone[~goes_on]]])


def _counted(run: Run, parts: Iterable[_Part], findings: Iterable[Finding]) -> StepCount:
    advice: dict[tuple[str, _Place], Finding] = {}
    for finding in findings:
        advice.setdefault((finding.rule, finding.where.key), finding)
    in_all = np.zeros(len(run.steps), dtype=np.int64)
    lines = []
    for part in parts:
        where = run.where(part.group)
        if is_check(where):
            continue
        per_step = np.bincount(np.searchsorted(run.steps.start[1:], part.times, side="right"), minlength=len(run.steps))
        in_all += per_step
        lines.append(_line(run, part, where, per_step, advice))
    most = int(in_all.max())
    return StepCount(
        most=most,
        step=int(in_all.argmax()) + 1 if most else 0,
        count=int(in_all.sum()),
        lines=tuple(sorted(lines, key=lambda line: (-line.most, -line.count, str(line.where.key), line.title))),
    )


def _line(
    run: Run, part: _Part, where: Where, per_step: I64, advice: Mapping[tuple[str, _Place], Finding]
) -> LineCount:
    known = (advice.get((rule, where.key)) for rule in part.rules)
    finding = next((each for each in known if each), None)
    return LineCount(
        where=where,
        most=int(per_step.max()),
        count=int(per_step.sum()),
        steps_seen=int(np.count_nonzero(per_step)),
        title=finding.title if finding and part.title else run.in_its_words(part.title),
        fix=finding.fix if finding else run.in_its_words(part.fix),
        rule=finding.rule if finding else "",
    )
