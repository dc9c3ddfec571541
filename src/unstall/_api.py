"""The public functions of unstall, as the package offers them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unstall.diagnose.explain import Report
from unstall.diagnose.explain import explain as explain_timeline
from unstall.diagnose.what_if import what_if as whatif
from unstall.read.live import Profile, read_profile
from unstall.timeline.columns import Timeline


def explain(
    source: str | Path | Timeline | Profile,
    *,
    step: str | None = None,
    user: str | Sequence[str] = (),
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
) -> Report:
    """Where the time went, which line, and why.

    `source` is a trace file, a timeline, or a `torch.profiler.profile` that has stopped; `explain` is also
    a handler for the profiler's `on_trace_ready`, and then prints the report, since the profiler drops what
    a handler returns. `step` names the annotation around one step; `user` are globs that narrow which files
    count as the user's. `plain_step_ns` is the step time measured without recording, by which the recorder's
    cost is taken out; `as_recorded` leaves it in.

    Raises TraceError for what cannot be read, UsageError where there is no such step or no finished profile.
    """
    timeline = source if isinstance(source, str | Path | Timeline) else read_profile(source)
    report = explain_timeline(timeline, step=step, user=user, plain_step_ns=plain_step_ns, as_recorded=as_recorded)
    if timeline is not source and _called_by_profiler():
        print(report)
    return report


__all__ = ["explain", "whatif"]


def _called_by_profiler() -> bool:
    """Whether `explain` was called by torch.profiler itself."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return isinstance(caller, str) and caller.startswith("torch.profiler")
