"""Computes the gain of fixing each finding, and the best order for the fixes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

import msgspec

from unstall.errors import UsageError
from unstall.figures import duration
from unstall.replay.steady import settle, steady_step_ns
from unstall.result import Finding, PlanStep
from unstall.what_if.edits import Edit, parse
from unstall.what_if.model import Model
from unstall.what_if.predict import WORTH, plan
from unstall.what_if.set_up import is_set_up, was_set_up

_MOST_EDITS = 24  # findings with the highest cost


@dataclass(frozen=True, slots=True)
class Gains:
    """The findings of a run with their gains, and the plan: the edits in their best order."""

    findings: tuple[Finding, ...]
    plan: tuple[PlanStep, ...]
    floor_ns: int  # the device's own busy time per step once the whole plan is done


COSTS_NOTHING = ": this costs next to nothing"
"""The end of a finding's text `saw` if the finding does not cost device time. It is removed from the text if fixing the
finding gains something.
"""

_MUCH = 0.05  # of the step

_NOTHING = 0.0005
"""A share of the step time. A smaller gain or a smaller loss cannot be measured."""


def _harmless(finding: Finding, gain: float, planned: Container[str], *, elsewhere: bool) -> bool:
    """Returns whether the finding needs no change, because its edit gains next to nothing.

    An edit may gain something only together with other edits. Such an edit is in the plan, so its finding is not
    harmless.

    Args:
        finding: The finding.
        gain: The gain of the finding's edit alone, as a share of the step time.
        planned: The edits in the plan, as text.
        elsewhere: The result of `_is_elsewhere`.
    """
    if finding.edit in planned or elsewhere:
        return False
    return gain < (WORTH if finding.harmless else _NOTHING)


def _is_elsewhere(finding: Finding, gain: float, planned: Container[str], much_ns: float) -> bool:
    """Returns whether two things are true: the finding's edit gains nothing, and the device idles for at least
    `much_ns` because of the finding.

    The gain of fixing such a finding is unknown. Always returns False for an edit other than "graph". `gain` is the
    gain of the edit alone, as a share of the step time.
    """
    idles = finding.exposed_ns >= much_ns and (finding.edit or "").startswith("graph")
    return idles and 0 <= gain < _NOTHING and finding.edit not in planned


def _saw(
    finding: Finding, gain: float, harmless: bool, planned: dict[str, tuple[int, int]], mends: int, error_ns: float
) -> str:
    """Returns the finding's evidence as text, followed by remarks about the gain of its edit.

    If several findings share the edit, the text says how many findings share the edit. If the edit gains something only
    in the plan, the text says how much the edit gains in the plan.

    Args:
        finding: The finding.
        gain: The gain of the finding's edit alone, as a share of the step time.
        harmless: Whether the finding needs no change.
        planned: For each edit in the plan: (number of the edit in the plan, gain of the edit in the plan in ns).
        mends: The number of findings that share the edit.
        error_ns: The error of the model in ns. The text does not give a number for a gain that is smaller than the
            error.
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


def _beyond(gain_ns: float, alone_ns: float, base_ns: float, error_ns: float) -> list[str]:
    """Returns a list with one note if an edit gains far more in the plan than alone. Otherwise returns an empty
    list.
    """
    if gain_ns - alone_ns < max(WORTH * base_ns, alone_ns):
        return []
    alone = duration(round(alone_ns)) if alone_ns >= max(_NOTHING * base_ns, error_ns) else "next to nothing"
    return [f"alone it gains {alone}; after the changes above it, {duration(round(gain_ns))}"]


def with_gains(model: Model, findings: Sequence[Finding]) -> Gains:
    """Replays the edit of each finding, and searches for the best order of all edits.

    Some findings cost no idle time, such as a slow copy that keeps the device busy. If fixing such a finding gains
    something, the finding is not harmless. If several findings share an edit, only the finding with the most exposed
    time gets the gain. If the run has no stacks, all findings that a graph fixes share one edit.
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
    best = plan(model, [edit for edit, _ in gained.values() if edit.text not in set_up], alone)
    planned = {step.edit.text: (number, round(step.gain_ns)) for number, step in enumerate(best, 1)}
    sharing = Counter(finding.edit for finding in findings)
    first: dict[str | None, Finding] = {}
    for finding in costliest:
        first.setdefault(finding.edit, finding)

    def with_gain(finding: Finding) -> Finding:
        if finding.edit not in gained or first[finding.edit] is not finding:
            return finding
        gain_ns = gained[finding.edit][1]
        share = gain_ns / base if base else 0.0  # if no op of a step is in the program, the step takes no time
        elsewhere = _is_elsewhere(finding, share, planned, _MUCH * base)
        harmless = was_set_up(finding, timeline, steps) or _harmless(finding, share, planned, elsewhere=elsewhere)
        saw = _saw(finding, share, harmless, planned, sharing[finding.edit], model.error_ns)
        known = abs(gain_ns) >= model.error_ns
        return msgspec.structs.replace(
            finding,
            gain_ns=round(gain_ns) if known and not elsewhere else None,
            gain_below_ns=None if known or elsewhere else round(model.error_ns),
            harmless=harmless,
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
                notes=(*p.notes, *_beyond(p.gain_ns, gained[p.edit.text][1], base, model.error_ns)),
            )
            for p in best
        ),
    )
