"""What `explain` finds in a made trace."""

from __future__ import annotations

from collections.abc import Sequence

from traces import TraceBuilder

from unstall.diagnose.explain import explain
from unstall.result import Finding, Result


def result_of(trace: TraceBuilder, *, step: str | None = None, user: Sequence[str] = ()) -> Result:
    return explain(trace.timeline(), step=step, user=user).result


def found(trace: TraceBuilder, rule: str) -> list[Finding]:
    """All findings of one rule."""
    return [finding for finding in result_of(trace).findings if finding.rule == rule]


def only(trace: TraceBuilder, rule: str) -> Finding:
    """The one finding of a rule."""
    (finding,) = found(trace, rule)
    return finding


def place(finding: Finding) -> tuple[str | None, int | None, str | None]:
    """(file, line, function)"""
    return finding.where.file, finding.where.line, finding.where.function
