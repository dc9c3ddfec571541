"""Works out what fixing each finding gains, and the best order of the fixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import msgspec

from unstall.errors import UsageError
from unstall.figures import duration
from unstall.replay.steady import settle, steady_step_ns
from unstall.result import Finding, PlanStep
from unstall.what_if.before_graphs import NEEDED, in_order
from unstall.what_if.edits import Edit, parse
from unstall.what_if.model import Model
from unstall.what_if.predict import WORTH, Prediction, plan
from unstall.what_if.set_up import is_set_up, was_set_up

_MOST_EDITS = 24  # findings with the highest cost


@dataclass(frozen=True, slots=True)
class Gains:
    """The gains of a run's findings, and the plan.

    Attributes:
        findings: The findings, with their gains.
        plan: The edits in the best order to make them.
        floor_ns: The device's busy time per step once the whole plan is carried out.
    """

    findings: tuple[Finding, ...]
    plan: tuple[PlanStep, ...]
    floor_ns: int


COSTS_NOTHING = ": this costs next to nothing"
"""The end of the text `saw` of a finding that costs no device time. It is taken off if fixing the
finding gains something.
"""

_MUCH = 0.05  # of the step

_NOTHING = 0.0005
"""A share of the step time. A gain or loss that is smaller cannot be measured."""


def _harmless(finding: Finding, gain: float, planned: Container[str], *, elsewhere: bool) -> bool:
    """Returns whether the finding needs no change, because its edit gains next to nothing.

    An edit that gains something only together with others is in the plan. Its finding is not
    harmless.

    Args:
        finding: The finding.
        gain: What the finding's edit gains alone, as a share of the step time.
        planned: The edits of the plan, as text.
        elsewhere: What `_is_elsewhere` returns for the finding.
    """
    if finding.edit in planned or elsewhere:
        return False
    return gain < (WORTH if finding.harmless else _NOTHING)


def _is_elsewhere(finding: Finding, gain: float, planned: Container[str], much_ns: float) -> bool:
    """Returns whether the finding's edit gains nothing although the device idles for long because
    of the finding, at least for `much_ns`. What fixing it would gain is then unknown.

    Only the edit "graph" is asked about: for all others, and for edits in `planned`, returns False.
    `gain` is what the edit gains alone, as a share of the step time.
    """
    idles = finding.exposed_ns >= much_ns and (finding.edit or "").startswith("graph")
    return idles and 0 <= gain < _NOTHING and finding.edit not in planned


def _saw(
    finding: Finding, gain: float, harmless: bool, planned: dict[str, tuple[int, int]], mends: int, error_ns: float
) -> str:
    """Returns the finding's evidence as text, with remarks on the gain of its edit.

    The remarks say how many findings the edit fixes, if there are several. If the edit gains
    something only in the plan, they say how much it gains there.

    Args:
        finding: The finding.
        gain: What the finding's edit gains alone, as a share of the step time.
        harmless: Whether the finding needs no change.
        planned: For each edit of the plan, its number in the plan and its gain there in ns.
        mends: How many findings the edit fixes.
        error_ns: The error of the replay. A gain that is smaller is not given as a number.
    """
    if harmless:
        return finding.saw
    saw = finding.saw.removesuffix(COSTS_NOTHING)
    if mends > 1 and gain >= _NOTHING:
        saw += f"; the same change fixes {mends} findings, and the gain is that of {'both' if mends == 2 else 'all'}"
    if finding.edit not in planned or gain >= _NOTHING:
        return saw
    number, gain_ns = planned[finding.edit]
    known = gain_ns > error_ns
    there = f"as step {number} of the plan {duration(gain_ns)}" if known else "but the plan needs it"
    return f"{saw}; fixed alone it gains next to nothing, {there}"


NOTHING_YET = "it gains nothing yet: changes below gain only with it"
"""The note of a change of the plan that gains nothing before later changes are made."""


def _remarks(made: Prediction, alone_ns: float, base_ns: float, error_ns: float) -> list[str]:
    """Returns one note in a list if an edit gains far more in the plan than alone, or nothing before
    later changes are made, and an empty list otherwise.

    Args:
        made: The edit in the plan.
        alone_ns: What the edit gains alone.
        base_ns: The step time without any edit.
        error_ns: The error of the replay.
    """
    gain_ns = made.gain_ns
    if gain_ns < _NOTHING * base_ns and NEEDED not in made.notes:
        return [NOTHING_YET]
    if gain_ns - alone_ns < max(WORTH * base_ns, alone_ns):
        return []
    alone = duration(round(alone_ns)) if alone_ns >= max(_NOTHING * base_ns, error_ns) else "next to nothing"
    return [f"alone it gains {alone}; after the changes above it, {duration(round(gain_ns))}"]


def with_gains(model: Model, findings: Sequence[Finding]) -> Gains:
    """Replays the run once with the edit of each finding, and looks for the best order of all these
    edits.

    A finding that costs no idle time, such as a slow copy while the device is busy, becomes worth a
    change if its edit gains something. If several findings have the same edit, only the one with
    the most exposed time gets the gain. In a run without stacks, for example, one edit stands for
    all that a CUDA graph fixes.
    """
    base = model.undistorted_step_ns
    # Between equal findings, neither the order of the file nor names decide.
    costliest = sorted(findings, key=lambda f: (-f.exposed_ns, -f.wait_ns, f.rule, f.spans, str(f.where)))
    gained: dict[str, tuple[Edit, float]] = {}
    for finding in costliest:
        if finding.edit and finding.edit not in gained and len(gained) < _MOST_EDITS:
            try:
                edit = parse(finding.edit)
                gained[finding.edit] = edit, base - steady_step_ns(edit.apply(model.subject).program)
            except UsageError:  # what was recorded there is not part of the program
                continue
    timeline, steps = model.subject.timeline, model.subject.steps
    set_up = {finding.edit for finding in findings if is_set_up(finding, timeline, steps)}
    alone = {text: gain for text, (_, gain) in gained.items()}
    exposed = {finding.edit: finding.exposed_ns for finding in reversed(costliest)}

    def rank(edit: Edit) -> tuple[float, int]:  # as the report sorts findings
        gain_ns = alone[edit.text]
        return -gain_ns if abs(gain_ns) >= model.error_ns else 0, -exposed[edit.text]

    best = in_order(model, plan(model, [edit for edit, _ in gained.values() if edit.text not in set_up], alone), rank)
    planned = {step.edit.text: (number, round(step.gain_ns)) for number, step in enumerate(best, 1)}
    sharing = Counter(finding.edit for finding in findings)
    first: dict[str | None, Finding] = {}
    for finding in costliest:
        first.setdefault(finding.edit, finding)

    def with_gain(finding: Finding) -> Finding:
        if finding.edit not in gained:
            return finding
        gain_ns = gained[finding.edit][1]
        share = gain_ns / base if base else 0.0  # if no op of a step is in the program, the step takes no time
        elsewhere = _is_elsewhere(finding, share, planned, _MUCH * base)
        once = was_set_up(finding, timeline, steps)
        harmless = once or _harmless(finding, share, planned, elsewhere=elsewhere)
        if first[finding.edit] is not finding:
            return msgspec.structs.replace(finding, harmless=harmless or finding.harmless, once=once)
        saw = _saw(finding, share, harmless, planned, sharing[finding.edit], model.error_ns)
        known = abs(gain_ns) >= model.error_ns
        return msgspec.structs.replace(
            finding,
            gain_ns=round(gain_ns) if known and not elsewhere else None,
            gain_below_ns=None if known or elsewhere else round(model.error_ns),
            harmless=harmless,
            once=once,
            saw=saw,
        )

    return Gains(
        findings=tuple(map(with_gain, findings)),
        floor_ns=round(settle(best[-1].subject.program if best else model.subject.program).busy_ns),
        plan=tuple(
            PlanStep(
                edit=p.edit.text,
                step_ns=round(p.step_ns),
                gain_ns=round(p.gain_ns),
                notes=(*p.notes, *_remarks(p, gained[p.edit.text][1], base, model.error_ns)),
            )
            for p in best
        ),
    )
