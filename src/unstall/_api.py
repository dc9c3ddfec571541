"""The public functions of unstall, as the package offers them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unstall.diagnose.explain import Report
from unstall.diagnose.explain import explain as explain_timeline
from unstall.diagnose.what_if import what_if as whatif
from unstall.read.live import Profile, read_profile
from unstall.timeline import Timeline


def explain(source: str | Path | Timeline | Profile, *, step: str | None = None, user: Sequence[str] = ()) -> Report:
    """Where the time went, which line, and why.

    `source` is a trace file, a timeline, or a `torch.profiler.profile` that has stopped; `explain` is also
    a handler for the profiler's `on_trace_ready`, and then prints the report, since the profiler drops what
    a handler returns. `step` names the annotation around one step; `user` are globs that narrow which files
    count as the user's.

    Raises TraceError for what cannot be read, UsageError where there is no such step or no finished profile.
    """
    if isinstance(source, str | Path | Timeline):
        return explain_timeline(source, step=step, user=user)
    report = explain_timeline(read_profile(source), step=step, user=user)
    if _called_by_profiler():
        print(report)
    return report


__all__ = ["explain", "whatif"]


def _called_by_profiler() -> bool:
    """Whether `explain` was called by torch.profiler itself."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return isinstance(caller, str) and caller.startswith("torch.profiler")
