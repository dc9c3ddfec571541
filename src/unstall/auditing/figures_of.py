"""The figures of a row, from the report of an entry's run."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.auditing.result import Figures, Found
from unstall.result import IDLE_CAUSES, Finding, Result

_WHOLE = "no steps were found, so the figures are of the whole run"
_WAIT_IF_BLOCKED = ("pageable-copy", "blocking-copy", "blocking-pinned-copy", "allocator-churn")


def figures_of(result: Result) -> Figures:
    """Returns the figures per step, without a recorder's overhead."""
    count, replay = result.steps.count, result.replay
    step_ns = replay.undistorted_mean_step_ns if replay else result.steps.mean_ns
    accounts = replay.accounts if replay and result.verdict.basis == "undistorted" else result.accounts
    idle_ns = sum(getattr(accounts.idle_ns, cause) for cause in IDLE_CAUSES)
    return Figures(
        device=result.source.device,
        torch=result.source.torch,
        known_error=result.source.known_error,
        steps=count,
        launches=sum(line.launches for line in result.lines) / count,
        copies=sum(line.copies for line in result.lines) / count,
        step_ns=step_ns,
        mended_ns=result.plan[-1].step_ns if result.plan else step_ns,
        idle=idle_ns / accounts.wall_ns if accounts.wall_ns else 0.0,
        bound_by=result.verdict.bound_by,
        findings=tuple(_found(result)),
        caveats=tuple(_caveats(result)),
    )


def _found(result: Result) -> Iterator[Found]:
    for finding in result.findings:
        is_wait = _is_wait(finding)
        if finding.wrong or is_wait or not finding.harmless:
            yield Found(
                rule=finding.rule,
                title=finding.title,
                where=finding.where,
                per_step=finding.count / result.steps.count,
                is_wait=is_wait,
                wait_ns=finding.wait_ns,
                gain_ns=_gain(finding),
                fix=finding.fix,
                safe_if=finding.safe_if,
                wrong=finding.wrong,
            )


def _is_wait(finding: Finding) -> bool:
    """Returns whether the host waits there. Copies and calls of the allocator are waits only if they block it."""
    return finding.rule.startswith("sync-") or (finding.rule in _WAIT_IF_BLOCKED and finding.wait_ns > 0)


def _gain(finding: Finding) -> int | None:
    """Returns the gain; 0 if it is within the replay's own error, or if the finding costs nothing."""
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
