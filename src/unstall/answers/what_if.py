"""`unstall.whatif`: predicts how changes would alter a recorded run. The result is an `Answer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unstall.diagnose.what_if import Forecast, what_if
from unstall.document.document import Document
from unstall.document.json import map_texts
from unstall.document.shown import Shown
from unstall.read.live import Profile, read_profile
from unstall.report.editor import with_links
from unstall.report.pictures import pictures_of
from unstall.report.scrub import files_of, scrubber_of
from unstall.report.what_if import document
from unstall.timeline.columns import Timeline


class Answer(Shown, Forecast):
    """The result of `whatif`: the step time of a run after changes, as a replay predicts it.
    `print` shows it. `save` writes it to a file as .html, .json, .md or .txt.
    """

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the answer as a document. If `scrub_paths` is set, file paths are shortened."""
        runs = self.before, self.after
        if not scrub_paths:
            return with_links(document(self.result, pictures_of(runs)), lambda: files_of(self.before.timeline))
        shorten = scrubber_of(self.result.source.path, files_of(self.before.timeline))
        return document(map_texts(self.result, shorten), pictures_of(runs, shorten))


def whatif(
    source: str | Path | Timeline | Profile,
    edits: str | Sequence[str],
    *,
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
    step: str | None = None,
    user: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Answer:
    """Predicts how changes would alter the step time of a recorded run.

    Several threads may call this function at the same time.

    Args:
        source: a trace that `torch.profiler` wrote, a saved timeline, a `Timeline`, or a
            `torch.profiler.profile` that has stopped.
        edits: one change, or several changes in the order in which to make them. Examples of a
            change are "remove-syncs", "graph:train.py:step" and "host-speed:2".
        plain_step_ns: the step time measured without recording, in ns. By default, the time stored
            in the file.
        as_recorded: keep the recorder's overhead in all times.
        step: the name (or glob) of the annotation around one step. By default, steps are detected.
        user: globs of the files that count as your code. By default, these are all files except
            framework files.
        progress: called with (bytes read so far, size of the file in bytes) while a file is read.

    Returns:
        The prediction. `print` shows it, and its `save` writes it as .html, .json, .md or .txt.

    Raises:
        TraceError: the file cannot be read, ends before its device events, or has no events.
        UsageError: an edit does not exist, an edit names a line or function that the run does not
            have, no annotation has the name that `step` gives, the steps have no device work, or
            the profile has not stopped.
    """
    timeline = source if isinstance(source, str | Path | Timeline) else read_profile(source)
    found = what_if(
        timeline, edits, plain_step_ns=plain_step_ns, as_recorded=as_recorded, step=step, user=user, progress=progress
    )
    return Answer(found.result, found.before, found.after)
