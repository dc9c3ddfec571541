"""Predicts what edits gain: the step time of the replayed program before an edit, less the step time after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import Edit
from unstall.what_if.model import Model
from unstall.what_if.subject import Subject


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """What one edit gains after all edits before it. Times are in ns per step.

    Attributes:
        edit: The edit.
        subject: The run with this edit and all edits before it.
        step_ns: The step time with this edit and all edits before it.
        gain_ns: How much shorter this edit makes the step.
        notes: What the edit could not do, and why, one sentence each.
    """

    edit: Edit
    subject: Subject
    step_ns: float
    gain_ns: float
    notes: tuple[str, ...]


def predict(model: Model, edits: Iterable[Edit]) -> list[Prediction]:
    """Makes the edits one after the other, and returns the prediction for each of them, in the same
    order.

    Raises:
        UsageError: Nothing was recorded at the place of an edit.
    """
    return _chain(list(edits), model.subject, model.undistorted_step_ns)


WORTH = 0.01
"""A share of the step time. An edit that gains less is not worth a change of the code."""

_MOST_STEPS = 8
_AFTER_OTHERS = ("overlap-copies", "graph")


def plan(model: Model, edits: Sequence[Edit], alone: Mapping[str, float] | None = None) -> list[Prediction]:
    """Returns the best edits in the order in which to make them, with the prediction for each.

    Each next edit is the one that gains most after all edits before it. Some edits gain something
    only together: if the host waits twice on one path, removing one of the waits gains nothing. So
    if no single edit gains anything more, the remaining ones are tried together: first those of one
    kind, then all.

    Args:
        model: The run, and the step time before any edit.
        edits: The edits to choose from.
        alone: What each edit gains alone, in ns per step, by the edit's text. If None, this is
            worked out.
    """
    chosen: list[Prediction] = []
    subject, step = model.subject, model.undistorted_step_ns
    worth = max(WORTH * step, model.error_ns)
    left = list(edits)
    tried: Sequence[Edit] = left
    while left and len(chosen) < _MOST_STEPS:
        if alone is None:
            made = [_made(edit, subject, step) for edit in tried]
            gains = [prediction.gain_ns for prediction in made]
        else:
            gains, alone = [alone[edit.text] for edit in tried], None
            made = [_made(tried[max(range(len(tried)), key=gains.__getitem__)], subject, step)]
        best = max(made, key=lambda prediction: prediction.gain_ns)
        if best.gain_ns >= worth:
            chosen.append(best)
            left = [edit for edit in left if edit is not best.edit]
            subject, step = best.subject, best.step_ns
            again = [edit for edit, gain in zip(tried, gains, strict=True) if gain >= worth and edit is not best.edit]
            tried = again or left
        elif len(tried) < len(left):
            tried = left  # edits that gained nothing before may now: a copy can overlap once it is pinned
        else:
            break
    return [*chosen, *_together(left, subject, step, worth, _MOST_STEPS - len(chosen))]


def _together(edits: Sequence[Edit], subject: Subject, step: float, worth: float, most: int) -> list[Prediction]:
    """Returns predictions for edits that gain something only together, in the order in which to
    make them.

    Edits that do not help are left out. Returns an empty list if all together gain less than
    `worth` ns, or if more than `most` of them are needed.
    """
    if most < 2 or len(edits) < 2:
        return []
    names = [edit.text.partition(":")[0] for edit in edits]
    alike = [[edit for edit, of in zip(edits, names, strict=True) if of == name] for name in dict.fromkeys(names)]
    # A copy can overlap once it is pinned, and a graph is longer without waits.
    every = sorted(edits, key=lambda edit: edit.text.startswith(_AFTER_OTHERS))
    for group in (*alike, *([every] if len(alike) > 1 else [])):
        if len(group) > 1 and step - _step_ns(group, subject) >= worth:
            needed = _needed(group, subject, worth)
            return _chain(needed, subject, step) if len(needed) <= most else []
    return []


def _needed(edits: Sequence[Edit], subject: Subject, worth: float) -> list[Edit]:
    """Returns those of the edits that contribute to what all of them gain together. An edit is left
    out if the others gain as much without it. This takes one replay for each edit.
    """
    needed, least = [], _step_ns(edits, subject)
    for number, edit in enumerate(edits):
        # `subject` has the edits before this one that are needed.
        without = _step_ns(edits[number + 1 :], subject)
        if without - least < worth / 10:
            least = without
        else:
            needed.append(edit)
            subject = edit.apply(subject)
    return needed


def _step_ns(edits: Sequence[Edit], subject: Subject) -> float:
    for edit in edits:
        subject = edit.apply(subject)
    return steady_step_ns(subject.program)


def _chain(edits: Sequence[Edit], subject: Subject, step: float) -> list[Prediction]:
    made: list[Prediction] = []
    for edit in edits:
        made.append(_made(edit, made[-1].subject if made else subject, made[-1].step_ns if made else step))
    return made


def _made(edit: Edit, subject: Subject, step: float) -> Prediction:
    edited = edit.apply(subject)
    after = steady_step_ns(edited.program)
    return Prediction(edit, edited, after, step - after, edited.notes[len(subject.notes) :])
