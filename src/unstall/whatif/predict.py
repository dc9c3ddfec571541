"""What edits would gain: the edited program's step time against the unedited one's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unstall.replay.steady import steady_step_ns
from unstall.whatif.edits import Edit
from unstall.whatif.model import Model
from unstall.whatif.subject import Subject


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """After an edit, and all those before it. Times are ns a step."""

    edit: Edit
    subject: Subject
    step_ns: float
    gain_ns: float  # against the step before this edit
    notes: tuple[str, ...]  # what the edit could not do, and why


def predict(model: Model, edits: Iterable[Edit]) -> list[Prediction]:
    """Make one edit after the other. Raises UsageError where nothing was recorded at an edit's place."""
    subject, before = model.subject, model.undistorted_step_ns
    predictions = []
    for edit in edits:
        edited = edit.apply(subject)
        step = steady_step_ns(edited.program)
        predictions.append(Prediction(edit, edited, step, before - step, edited.notes[len(subject.notes) :]))
        subject, before = edited, step
    return predictions


_WORTH = 0.01  # of the step: what the replay itself may be off by
_MOST_EDITS = 8


def plan(model: Model, edits: Sequence[Edit]) -> list[Prediction]:
    """The edits in the order to make them, each the one that gains most after those before it."""
    chosen: list[Prediction] = []
    subject, step = model.subject, model.undistorted_step_ns
    left = list(edits)
    while left and len(chosen) < _MOST_EDITS:
        tried = []
        for edit in left:
            edited = edit.apply(subject)
            after = steady_step_ns(edited.program)
            tried.append(Prediction(edit, edited, after, step - after, edited.notes[len(subject.notes) :]))
        best = max(tried, key=lambda prediction: prediction.gain_ns)
        if best.gain_ns < _WORTH * step:
            break
        chosen.append(best)
        subject, step = best.subject, best.step_ns
        worth = {t.edit.text for t in tried if t.gain_ns >= _WORTH * step}
        left = [edit for edit in left if edit.text in worth and edit is not best.edit]
    return chosen
