"""Notes on a recording: what is missing in it, was repaired, or may mislead."""

from __future__ import annotations

import shlex

from unstall.diagnose.graphed_checks import note_of_checks
from unstall.diagnose.run import Run
from unstall.diagnose.step_notes import notes_of_steps
from unstall.figures import share


def notes_of(run: Run) -> tuple[str, ...]:
    """Returns a sentence for each thing in a recording that is missing, was repaired, or may mislead."""
    timeline, steps = run.timeline, run.steps
    notes = timeline.meta.notes
    covered = int((steps.end - steps.start).sum())
    between = int((steps.start[1:] - steps.end[:-1]).clip(min=0).sum())
    if between > covered:
        notes = (
            *notes,
            f"the steps themselves span {share(covered, covered + between)} of the host's time from the first to the "
            "last: what happens between them counts too",
        )
    notes = (*notes, *notes_of_steps(run))
    own = timeline.meta.recorder is not None
    if not run.activity.operators and run.ops_inside.any() and not own:
        notes = (*notes, "no operators were recorded (ProfilerActivity.CPU), so Python's share cannot be told")
    if steps.hint is not None:
        notes = (
            *notes,
            f"an annotation, {steps.hint!r}, is around nearly all launches, again and again: if it marks a step, "
            f"--step {shlex.quote(steps.hint)} goes by it",
        )
    if proofs := note_of_checks(run):
        notes = (*notes, proofs)
    if run.places.unmatched and timeline.meta.has_stacks:
        globs = ", ".join(map(shlex.quote, run.places.unmatched))
        so = "" if run.places.is_user_frame.any() else ", so places are annotations or operators, not lines"
        notes = (*notes, f"no recorded file matches --user {globs}{so}")
    if timeline.meta.has_stacks or not len(timeline.host):
        return notes
    if timeline.meta.recorder == "virtual":
        return (*notes, "no Python was seen at work, so places are annotations or operators")
    if own:
        return (*notes, "no lines were recorded, so places are annotations or operators: record without --lines none")
    advice = (
        "no Python stacks were recorded, so places are annotations or operators, not lines: "
        "record with profile(with_stack=True, experimental_config=_ExperimentalConfig(verbose=True))"
    )
    return (*notes, advice)
