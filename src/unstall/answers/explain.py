"""`unstall.explain`: makes a `Report` from a trace, a timeline, or a profile in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from unstall.answers.cells import with_cell_names
from unstall.answers.report import Report
from unstall.diagnose.explain import explain as diagnose
from unstall.read.live import Profile, read_profile
from unstall.timeline.columns import Timeline


def explain(
    source: str | Path | Timeline | Profile,
    *,
    step: str | None = None,
    user: str | Sequence[str] = (),
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Explains where the time of a run went, at which source lines, and why.

    The profiler also accepts `explain` as its `on_trace_ready`. In this case `explain` prints the
    report, because the profiler ignores the value that `on_trace_ready` returns.

    Several threads may call this function at the same time.

    Args:
        source: a trace file, a saved timeline, a `Timeline`, or a `torch.profiler.profile` that has
            stopped.
        step: the name (or glob) of the annotation around one step. By default, steps are detected.
        user: globs of the files that count as your code. By default, these are all files except
            framework files.
        plain_step_ns: the step time measured without recording, in ns. It is used to remove the
            recorder's overhead. By default, the time stored in the file.
        as_recorded: keep the recorder's overhead in the verdict.
        progress: called with (bytes read so far, size of the file in bytes) while a file is read.

    Returns:
        The report. `print` shows it, and its `save` writes it as .html, .json, .md or .txt.

    Raises:
        TraceError: the file cannot be read, ends before its device events, or has no events.
        UsageError: no annotation has the name that `step` gives, or the profile has not stopped.
    """
    timeline = source if isinstance(source, str | Path | Timeline) else read_profile(source)
    found = diagnose(
        with_cell_names(timeline) if isinstance(timeline, Timeline) else timeline,
        step=step,
        user=user,
        plain_step_ns=plain_step_ns,
        as_recorded=as_recorded,
        progress=progress,
    )
    report = Report(found.result, found.run)
    if timeline is not source and _called_by_profiler():
        print(report)
    return report


def _called_by_profiler() -> bool:
    """Returns whether torch.profiler called `explain`."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return isinstance(caller, str) and caller.startswith("torch.profiler")
