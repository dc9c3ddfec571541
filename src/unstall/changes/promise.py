"""Compares the step time that run A's report promised with the step time that run B reached."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from unstall.changes.alignment import Alignment
from unstall.changes.result import DiffResult, Free, Promise, PromisedEdit
from unstall.changes.sides import ComparedRun, Sides
from unstall.figures import counted, duration, in_one_unit
from unstall.result import UNTRUSTED, Finding, Result, Steps, Where

_PART = 0.1  # of an edit's gain: what is left of it by less than this was done

_MUCH = 0.5

Place = tuple[str | None, int | None, str | None]
Numbers = Mapping[Place, int]
"""Maps a line, as `(file, line, function)`, to its number. The same line has the same number in both runs."""


def promise_of(a: Result, b: Result, found: Alignment, sides: Sides | None = None) -> Promise:
    """Returns the step time that the report of run A promised after all changes of its plan, and
    the step time that run B reached, in ns.

    Args:
        a: The result of run A, which has the plan.
        b: The result of run B.
        found: The ratio of steps that do the same work. The times are for `found.a` steps of A and
            for `found.b` steps of B.
        sides: Both runs, with their source lines matched. If None, only lines with equal file,
            number and function are the same.
    """
    got_ns = step_ns(b) * found.b
    if not a.plan or a.replay is None:
        return Promise(before_ns=step_ns(a) * found.a, got_ns=got_ns, free=_free(b, found.b))
    promised_ns = a.plan[-1].step_ns * found.a
    left = _left(a, b, found, sides)
    return Promise(
        before_ns=a.replay.undistorted_mean_step_ns * found.a,
        promised_ns=promised_ns,
        got_ns=got_ns,
        floor_ns=None if a.floor_ns is None else a.floor_ns * found.a,
        error_ns=a.replay.error_ns * found.a,
        free=_free(b, found.b),
        edits=tuple(
            PromisedEdit(
                edit=step.edit,
                step_ns=step.step_ns * found.a,
                gain_ns=step.gain_ns * found.a,
                still_at=left[number][0].where if number in left else None,
                left_ns=left[number][1] if number in left else None,
            )
            for number, step in enumerate(a.plan)
        ),
    )


def sentence(result: DiffResult) -> str:
    """Returns the conclusion of a comparison of two runs, such as "promised 0.653 ms, got 0.697
    ms".

    If the times are not for one step of each run, the text says so.
    """
    promise, (steps_a, steps_b) = result.promise, result.compared
    if promise is None:
        return "these runs cannot be compared"
    steps = " in all" if result.of_whole_runs else ""
    if result.compared != (1, 1):
        steps = f" ({counted(steps_a, 'step')} before, {steps_b:,} now)"
    steps += _of_few_steps(result.b.steps)
    if promise.promised_ns is None:
        before, now = in_one_unit(promise.before_ns, promise.got_ns)
        return f"before {before}, now {now}{steps}"
    promised, got = in_one_unit(promise.promised_ns, promise.got_ns)
    return f"promised {promised}, got {got}{steps}"


def _of_few_steps(steps: Steps) -> str:
    """Returns a clause that says that most steps of run B were left out of the figures; "" if they
    were not.

    If most steps were left out, the step time of B is not the time that most steps of the program
    take.
    """
    left_out = steps.left_out
    if left_out is None or not left_out.most:
        return ""
    return (
        f", but only in {steps.count:,} of {left_out.of:,} steps: the {left_out.count:,} left out, in which or between "
        f"which unstall.graphed proves or captures graphs, take {duration(left_out.mean_ns)} in the mean"
    )


def step_ns(result: Result) -> int:
    """Returns the step time of a run without the recorder's overhead, in ns.

    If the step time was measured without recording, returns the measured time. If not, returns the
    replayed time. If there is no replay, or if its error is too large, returns the recorded time.
    """
    replay = result.replay
    if replay is None:
        return result.steps.mean_ns
    if replay.plain_step_ns is not None:
        return replay.plain_step_ns
    return result.steps.mean_ns if abs(replay.error) > UNTRUSTED else replay.undistorted_mean_step_ns


def _free(result: Result, times: int) -> Free | None:
    """Returns the resource that limits a step most, and how long `times` steps take if this resource took no time.

    Returns None if the resource is unknown, or if the gain is within the replay's error.
    """
    gains, replay = result.verdict.if_free, result.replay
    if not gains or replay is None:
        return None
    resource = max(gains, key=lambda name: gains[name])
    gain_ns = gains[resource]
    if gain_ns <= replay.error_ns:
        return None
    return Free(resource=resource, step_ns=max(step_ns(result) - gain_ns, 0) * times)


def _left(a: Result, b: Result, found: Alignment, sides: Sides | None) -> dict[int, tuple[Finding, int]]:
    """Returns the edits of A's plan that are still to be made in B.

    Returns:
        Maps the index of the edit in A's plan to (finding, gain). The finding is a finding of B with the same edit at
        the same place. The gain is what the edit gains in B, in ns: alone or within B's plan, whichever is larger.
    """
    of_a = {finding.edit: finding for finding in reversed(a.findings) if finding.edit}
    numbers = _numbers(sides.a) if sides else {}, _numbers(sides.b) if sides else {}
    steps = [
        (index, of_a[step.edit], step.gain_ns * found.a) for index, step in enumerate(a.plan or ()) if step.edit in of_a
    ]
    planned = {step.edit: step.gain_ns for step in b.plan or ()}
    open_ = [
        (each, max(_cost(each), planned.get(each.edit, 0)) * found.b)
        for each in b.findings
        if each.edit and (not each.harmless or each.edit in planned)
    ]
    left: dict[int, tuple[Finding, int]] = {}
    taken: set[int] = set()
    # Else it is the same edit elsewhere in the function, or one that gains much: mending moves code to others.
    for key, least in ((_exactly, _PART), (_in_function, _PART), (_anywhere, _MUCH)):
        for index, finding, gain_ns in steps:
            own = key(finding, numbers[0])
            same = (i for i, (each, _) in enumerate(open_) if i not in taken and key(each, numbers[1]) == own)
            match = None if index in left else next(same, None)
            if match is not None and open_[match][1] >= least * gain_ns:
                left[index] = open_[match]
                taken.add(match)
    return left


def _numbers(side: ComparedRun) -> Numbers:
    """Maps (file, line, function) to the number of the place, for each place that is compared."""
    places = side.run.places
    found: dict[Place, int] = {}
    rows = side.place.nonzero()[0]
    for place, number in set(zip(places.place[rows].tolist(), side.place[rows].tolist(), strict=True)):
        where = places.where(place, -1, None)
        found[where.file, where.line, where.function] = number
    return found


def _exactly(finding: Finding, numbers: Numbers) -> object:
    where = finding.where
    place = where.file, where.line, where.function
    return _verb(finding), numbers.get(place, place), where.op


def _in_function(finding: Finding, numbers: Numbers) -> object:
    where = finding.where
    return _verb(finding), posixpath.basename((where.file or "").replace("\\", "/")), where.function, where.op


def _anywhere(finding: Finding, numbers: Numbers) -> object:
    return _verb(finding), finding.where.op


def _verb(finding: Finding) -> str:
    """Returns the edit of a finding, without the place of the edit."""
    return (finding.edit or "").partition(":")[0]


def _cost(finding: Finding) -> int:
    """Returns the gain of fixing a finding, in ns per step. If the gain is unknown, returns the exposed time."""
    if finding.gain_ns is not None:
        return finding.gain_ns
    return finding.gain_below_ns or finding.exposed_ns


def place_of(where: Where) -> str:
    """Returns a source line as text, such as "train.py:12". If the line is unknown, returns the
    function or operator.
    """
    if where.file and where.line is not None:
        return f"{posixpath.basename(where.file)}:{where.line}"
    return where.function or where.op or "an unknown line"


def remainder(result: DiffResult) -> str:
    """Returns a sentence that names the changes in run A's plan that were not made in run B; "" if all were made."""
    left = [
        f"{edit.edit.partition(':')[0]} at {place_of(edit.still_at)}"
        for edit in (result.promise.edits if result.promise else ())
        if edit.still_at is not None
    ]
    return f"still there, of the plan: {', '.join(left)}" if left else ""
