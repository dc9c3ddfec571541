"""The function `what_if`, which predicts the step time of a recorded run after edits. An edit is a
change that a replay can make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from unstall._version import __version__
from unstall.diagnose.analyse import analyse
from unstall.diagnose.arguments import texts
from unstall.diagnose.explain import source_of, steps_of
from unstall.diagnose.input_check import load_usable
from unstall.diagnose.notes import notes_of
from unstall.diagnose.outlook import freed_of, look_ahead, replayed_run
from unstall.diagnose.run import Run
from unstall.diagnose.verdict import bound_by
from unstall.errors import UsageError
from unstall.replay.steady import settle
from unstall.result import EditStep, Integrity, WhatIf
from unstall.timeline.columns import Timeline
from unstall.what_if.edits import about, parse
from unstall.what_if.predict import predict

_NOTHING_TO_CHANGE = "The recorded steps have nothing that this edit changes"


@dataclass(frozen=True)
class Forecast:
    """The result of `what_if`.

    Attributes:
        result: The prediction, as data.
        before: The run before the edits, from which charts are drawn.
        after: The run after the edits, with the times of the replay.
    """

    result: WhatIf
    before: Run
    after: Run

    @property
    def predicted_step_ns(self) -> int:
        """The step time after all edits, in ns, as the replay predicts it."""
        return self.result.predicted_step_ns


def what_if(
    source: str | Path | Timeline,
    edits: str | Sequence[str],
    *,
    plain_step_ns: int | None = None,
    as_recorded: bool = False,
    step: str | None = None,
    user: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> Forecast:
    """Predicts the step time of a recorded run after edits: replays the run with the edits made.

    Args:
        source: A trace that `torch.profiler` wrote, a saved timeline, or a `Timeline`.
        edits: One edit, or several edits in order. Examples are "remove-syncs",
            "graph:train.py:step" and "host-speed:2".
        plain_step_ns: The step time measured without recording, in ns. By default, the value in the
            file is used.
        as_recorded: Whether all times include the recorder's overhead.
        step: The name of the annotation around each step, or a glob. By default, steps are
            detected.
        user: One or several globs of the files with your code. By default, all files except those
            of frameworks.
        progress: A function that is called with (bytes read, total bytes) while a file is read.

    Raises:
        TraceError: The file cannot be read, ends before its device events, or has no events.
        UsageError: An edit does not exist, an edit names a line or function that the run does not
            have, no annotation is called `step`, or the steps have no device work.
    """
    chosen = [parse(text) for text in texts(edits, "edits", "edits")]
    user = texts(user, "user", "globs of files")
    timeline = source if isinstance(source, Timeline) else load_usable(source, progress)
    run = analyse(timeline, step=step, user=user)
    if not run.ops_inside.any():
        raise UsageError(f"{timeline.meta.path}: no device work falls into its steps, so nothing can be replayed")
    outlook = look_ahead(run, plain_step_ns=plain_step_ns, as_recorded=as_recorded)
    predictions = predict(outlook.model, chosen)
    known = outlook.model
    last = predictions[-1].step_ns if predictions else known.undistorted_step_ns
    after = replayed_run(run, predictions[-1].subject) if predictions else outlook.undistorted
    result = WhatIf(
        version=__version__,
        source=source_of(timeline),
        integrity=Integrity(ok=timeline.meta.sound, notes=notes_of(run)),
        steps=steps_of(run),
        measured_step_ns=round(known.measured_step_ns),
        replayed_step_ns=round(known.replayed_step_ns),
        error_ns=round(known.error_ns),
        plain_step_ns=known.plain_step_ns,
        undistorted_step_ns=round(known.undistorted_step_ns),
        undistorted_by=known.undistorted_by,
        usual_error=outlook.usual_error,
        predicted_step_ns=round(last),
        floor_ns=round(settle((predictions[-1].subject if predictions else known.subject).program).busy_ns),
        edits=tuple(
            EditStep(
                edit=p.edit.text,
                about=about(p.edit),
                step_ns=round(p.step_ns),
                gain_ns=round(p.gain_ns),
                notes=p.notes if p.notes or p.subject.differs(before) else (_NOTHING_TO_CHANGE,),
            )
            for before, p in zip([known.subject, *(p.subject for p in predictions)], predictions, strict=False)
        ),
        inferred=known.subject.program.notes,
        before=outlook.undistorted.accounts,
        after=after.accounts,
        bound_by=(
            bound_by(outlook.undistorted, outlook.freed),
            bound_by(after, freed_of(known, predictions[-1].subject, last) if predictions else outlook.freed),
        ),
    )
    return Forecast(result, outlook.undistorted, after)
