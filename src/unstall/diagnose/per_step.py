"""Counts the waits, the launches and the copies in a step, by source line.

A result has the total count over all steps, and the count in the step with the highest count. The
mean count would hide a wait that happens in every tenth step only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unstall.diagnose.allocation import first_of_each, in_a_row
from unstall.diagnose.copies import upload_waits
from unstall.diagnose.graphed_checks import is_check
from unstall.diagnose.rules.allocator_churn import calls_for_device_memory
from unstall.diagnose.rules.host_wait import waits_by_way
from unstall.diagnose.run import Group, Run
from unstall.result import Finding, LineCount, StepCount, Where
from unstall.timeline.columns import I64, CopyDirection, DeviceKind

_Place: TypeAlias = tuple[str | None, int | None, str | None, str | None]
_OF_UPLOADS = ("pageable-copy", "blocking-pinned-copy", "blocking-copy")
_BETWEEN = (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST)
_OF_LAUNCHES = ("launch-bound", "tiny-kernels")


@dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """The calls at one place. `times` has the start time of each call.

    If a rule in `rules` has a finding at the same place, the advice of this finding is used. Otherwise, the advice is
    `fix`.
    """

    group: Group
    times: I64
    rules: tuple[str, ...] = ()
    title: str = ""
    fix: str = ""


def waits_per_step(run: Run, findings: Iterable[Finding]) -> StepCount:
    """Returns how often the host waits for a device in a step, by source line.

    An operator that waits counts once, even if several of its driver calls wait. A wait outside of
    operators counts once for each call. Consecutive calls of `cudaFree` at one line together count
    once. The first growth of torch's caching allocator does not count, because it does not happen
    again in later steps.

    `findings` are the findings of the run. If one of them is at a line, the count of the line has
    its advice.
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
            run.timeline.host.start[in_a_row(run, group.rows)],
            ("allocator-churn",),
            "Device memory is taken from the driver, or given back",
        )
        for group in run.lines(asking)
    ]
    return _counted(run, parts, findings)


def launches_per_step(run: Run, findings: Iterable[Finding]) -> StepCount:
    """Returns how often the host launches work on a device in a step, by source line.

    Each call that launches a kernel, a graph, a copy or a memset counts once. `findings` are the
    findings of the run. If one of them is at a line, the count of the line has its advice.
    """
    launch = run.timeline.device.launch
    rows = _inside(run, np.unique(launch[launch >= 0]).astype(np.int64))
    start = run.timeline.host.start
    return _counted(run, [_Part(group, start[group.rows], _OF_LAUNCHES) for group in run.lines(rows)], findings)


def copies_per_step(run: Run) -> StepCount:
    """Returns how many copies between host and device a step makes, by source line. Copies in a
    CUDA graph count each time that the graph is launched.
    """
    device = run.timeline.device
    chosen = (device.kind == DeviceKind.COPY) & np.isin(device.direction, _BETWEEN) & (device.launch >= 0)
    rows = _inside(run, device.launch[chosen].astype(np.int64))
    start = run.timeline.host.start
    return _counted(run, [_Part(group, start[group.rows]) for group in run.lines(rows)], ())


def _inside(run: Run, rows: I64) -> I64:
    return rows[run.inside[rows]]


def _calls(run: Run, rows: I64) -> I64:
    """Returns the start times of the first of `rows` in each operator, and of all `rows` outside of operators."""
    return run.timeline.host.start[first_of_each(run, rows)]


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
