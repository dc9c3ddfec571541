"""Predicts the gain of edits: the step time of the edited program against that of the unedited one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import Edit
from unstall.what_if.model import Model
from unstall.what_if.subject import Subject


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """The result of one edit after all edits before it. Times are ns per step."""

    edit: Edit
    subject: Subject
    step_ns: float
    gain_ns: float  # compared to the step before this edit
    notes: tuple[str, ...]  # what the edit could not do, and why


def predict(model: Model, edits: Iterable[Edit]) -> list[Prediction]:
    """Make one edit after the other. Raises UsageError if nothing was recorded at an edit's place."""
    return _chain(list(edits), model.subject, model.undistorted_step_ns)


WORTH = 0.01
"""Share of the step: a smaller gain is within the replay's own error."""

_MOST_STEPS = 8


def plan(model: Model, edits: Sequence[Edit]) -> list[Prediction]:
    """Returns the edits in the order to make them: at each point the edit that gains most comes next.

    Two waits on one path gain nothing one by one. So if no single edit gains any more, all remaining ones of a kind are
    tried together.
    """
    chosen: list[Prediction] = []
    subject, step = model.subject, model.undistorted_step_ns
    left = list(edits)
    tried: Sequence[Edit] = left
    while left and len(chosen) < _MOST_STEPS:
        made = [_made(edit, subject, step) for edit in tried]
        best = max(made, key=lambda prediction: prediction.gain_ns)
        if best.gain_ns >= WORTH * step:
            chosen.append(best)
            left = [edit for edit in left if edit is not best.edit]
            subject, step = best.subject, best.step_ns
            tried = [p.edit for p in made if p.gain_ns >= WORTH * step and p.edit is not best.edit] or left
        elif len(tried) < len(left):
            tried = left  # edits that gained nothing before may now: a copy can overlap once it is pinned
        else:
            break
    return [*chosen, *_together(left, subject, step, _MOST_STEPS - len(chosen))]


def _together(edits: Sequence[Edit], subject: Subject, step: float, most: int) -> list[Prediction]:
    """Returns edits of the same name, one after the other, if all together gain; without those that do not help."""
    for name in dict.fromkeys(edit.text.partition(":")[0] for edit in edits):
        group = [each for each in edits if each.text.partition(":")[0] == name][:most]
        made = _chain(group, subject, step)
        if len(made) < 2 or step - made[-1].step_ns < WORTH * step:
            continue
        for edit in group:
            fewer = [p.edit for p in made if p.edit is not edit]
            without = _chain(fewer, subject, step)
            if without and without[-1].step_ns - made[-1].step_ns < WORTH / 10 * step:
                made = without
        return made
    return []


def _chain(edits: Sequence[Edit], subject: Subject, step: float) -> list[Prediction]:
    made: list[Prediction] = []
    for edit in edits:
        made.append(_made(edit, made[-1].subject if made else subject, made[-1].step_ns if made else step))
    return made


def _made(edit: Edit, subject: Subject, step: float) -> Prediction:
    edited = edit.apply(subject)
    after = steady_step_ns(edited.program)
    return Prediction(edit, edited, after, step - after, edited.notes[len(subject.notes) :])
