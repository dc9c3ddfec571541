"""Computes the row of an audited program from the report of its run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from unstall.auditing.result import Figures, Found
from unstall.result import Finding, LineCount, Result

_WHOLE = "no steps were found, so the figures are of the whole run"


def figures_of(result: Result) -> Figures:
    """Returns the figures of an audited program, without the recorder's overhead. Times and counts
    are per step.

    `result` is the result of the program's run.
    """
    count, replay = result.steps.count, result.replay
    step_ns = replay.undistorted_mean_step_ns if replay else result.steps.mean_ns
    accounts = replay.accounts if replay and result.verdict.basis == "undistorted" else result.accounts
    return Figures(
        device=result.source.device,
        torch=result.source.torch,
        known_error=result.source.known_error,
        steps=count,
        launches=result.launches.count / count if result.launches else 0.0,
        copies=result.copies.count / count if result.copies else 0.0,
        step_ns=step_ns,
        mended_ns=result.plan[-1].step_ns if result.plan else step_ns,
        idle=accounts.all_idle_ns / accounts.wall_ns if accounts.wall_ns else 0.0,
        bound_by=result.verdict.bound_by,
        findings=tuple(_found(result)),
        caveats=tuple(_caveats(result)),
    )


def _found(result: Result) -> Iterator[Found]:
    """Yields each finding that costs time, is a wait, or is about wrong results. Then yields the waits that no finding
    reports."""
    waits: dict[tuple[object, ...], list[LineCount]] = defaultdict(list)
    for line in result.waits.lines if result.waits else ():
        waits[line.rule, line.where.key].append(line)
    for finding in result.findings:
        here = waits[finding.rule, finding.where.key]
        wait = here.pop(0) if here else None
        if finding.wrong or wait or not finding.harmless:
            yield Found(
                rule=finding.rule,
                title=finding.title,
                where=finding.where,
                per_step=(wait or finding).count / result.steps.count,
                is_wait=wait is not None,
                wait_ns=finding.wait_ns,
                gain_ns=_gain(finding),
                fix=finding.fix,
                safe_if=finding.safe_if,
                wrong=finding.wrong,
            )
    for line in (line for here in waits.values() for line in here):
        yield Found(
            rule=line.rule,
            title=line.title,
            where=line.where,
            per_step=line.count / result.steps.count,
            is_wait=True,
            wait_ns=None,
            gain_ns=None,
            fix=line.fix,
            safe_if="",
        )


def _gain(finding: Finding) -> int | None:
    """Returns by how many ns a step gets shorter if the finding is fixed. Returns 0 if the gain is smaller than the
    replay's error, or if the finding costs nothing. Returns None if the gain is not known."""
    if finding.gain_ns is None and (finding.harmless or finding.gain_below_ns is not None):
        return 0
    return finding.gain_ns


def _caveats(result: Result) -> Iterator[str]:
    if result.steps.found_by == "whole":
        yield _WHOLE
    if result.integrity.shortfall:
        yield result.integrity.shortfall
    if not result.integrity.ok:
        yield from result.integrity.notes
