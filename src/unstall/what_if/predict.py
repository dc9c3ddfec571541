"""Predicts the gain of edits. The gain is the step time of the unedited program minus the step time of the edited
program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unstall.replay.steady import steady_step_ns
from unstall.what_if.edits import Edit
from unstall.what_if.model import Model
from unstall.what_if.subject import Subject


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """The gain of one edit if all edits before it are already made. Times are in ns per step."""

    edit: Edit
    subject: Subject
    step_ns: float
    gain_ns: float  # compared to the step before this edit
    notes: tuple[str, ...]  # what the edit could not do, and why


def predict(model: Model, edits: Iterable[Edit]) -> list[Prediction]:
    """Applies the edits one after the other. Predicts the step time after each edit.

    Raises:
        UsageError: Nothing was recorded at the place of an edit.
    """
    return _chain(list(edits), model.subject, model.undistorted_step_ns)


WORTH = 0.01
"""A share of the step time. A smaller gain is not worth a separate change of the code."""

_MOST_STEPS = 8
_AFTER_OTHERS = ("overlap-copies", "graph")


def plan(model: Model, edits: Sequence[Edit], alone: Mapping[str, float] | None = None) -> list[Prediction]:
    """Returns the edits in the order in which to make them.

    The next edit is always the edit that gains most if all edits before it are already made. Some edits gain something
    only together. For example, if a path has two waits, removing only one of the two waits gains nothing. So when no
    single edit gains anything, the remaining edits are tried together: first all edits of one kind, then all edits.

    Args:
        model: The run.
        edits: The edits to choose from.
        alone: The gain of each edit alone, in ns per step, by the edit's text. If None, the gains are computed.
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
    """Returns predictions for edits that gain something only together, in the order in which to make them.

    Leaves out edits that do not help. Returns an empty list if the edits together gain less than `worth` ns. Also
    returns an empty list if more than `most` edits are needed.
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
    """Returns the edits that contribute to the total gain. Leaves out an edit if the other edits gain as much without
    it. Needs one replay for each edit."""
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
