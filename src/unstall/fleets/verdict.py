"""The function `verdict_of`: says in sentences what holds up a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall.figures import capital, counted, duration, share
from unstall.fleets.absent import Absent, absent_of, sends_and_receives
from unstall.fleets.assess import Assessed, begins, clock_fit, stages_of
from unstall.fleets.idle_host import lower_median
from unstall.fleets.job import Job
from unstall.fleets.join import ranks_text
from unstall.fleets.result import Cause, FleetVerdict, Stage
from unstall.result import UNTRUSTED

_NOTABLE = 0.05  # of a step: what gains less does not hold up the job
_PLACE_LENGTH = 60
_PAIR = 2
_OF_TWO = (
    "What it gains if they work alike cannot be told, as of two ranks one is slower in each operation by chance alone."
)
_FEW = 2  # ranks that are late in single steps and are still named one by one


def verdict_of(job: Job, assessed: Assessed) -> FleetVerdict:
    """Returns what holds up the job. If ranks have no trace, the text ends with a sentence on the time with them."""
    absent = absent_of(job)
    verdict = _of_present(job, assessed, absent)
    if not absent.spent_ns:
        return verdict
    them = "it" if len(absent.ranks) == 1 else "them"
    others, spend = ("the others", "spend") if len(job.ranks) > 1 else (f"rank {job.ranks[0].number}", "spends")
    said = (
        f"No trace of {ranks_text(absent.ranks)} could be used: {others} may wait for {them}, and {spend} up to "
        f"{duration(absent.spent_ns)} {per_unit(job.ranks[0].summary.unit)} in operations with {them}."
    )
    return replace(verdict, text=f"{verdict.text} {said}")


def _of_present(job: Job, assessed: Assessed, absent: Absent) -> FleetVerdict:
    """Returns what holds up the job, as far as the ranks that have a trace show it."""
    unit = job.ranks[0].summary.unit
    base = assessed.replayed_ns
    if not len(job.joined):
        return FleetVerdict(
            bound_by="own work",
            text="The traces show no collective that the ranks share, so they cannot show which rank waits for which.",
        )
    stragglers = assessed.stragglers
    if len(stragglers) > _FEW and all(each.steps for each in stragglers):
        return FleetVerdict(bound_by="uneven work", text=_of_turns(assessed, unit, job))
    if stragglers:
        mended_ns = base - sum(each.gain_ns for each in stragglers)
        if assessed.recorded_ns - mended_ns < assessed.error_ns > UNTRUSTED * assessed.recorded_ns:
            return FleetVerdict(bound_by="unknown", text=_of_untrusted(assessed, unit))
        return FleetVerdict(bound_by="straggler", text=_of_straggler(assessed, unit, job))
    sent, unmatched = sends_and_receives(job)
    if unmatched.mean() >= max(_NOTABLE * base, assessed.error_ns):
        return _of_unmatched(assessed, unit, job, sent)
    gains = {
        "stages": base - assessed.balanced_ns if assessed.balanced_ns is not None else 0.0,
        "uneven work": base - assessed.ideal_ns,
        "communication": base - assessed.silent_ns,
        "late start": _apart(job),
    }
    most = max(gains, key=lambda each: gains[each])
    if gains[most] < assessed.error_ns > UNTRUSTED * assessed.recorded_ns:
        return FleetVerdict(bound_by="unknown", text=_of_untrusted(assessed, unit))
    is_small = gains[most] < max(_NOTABLE * base, assessed.error_ns)
    if absent.unmatched_ns >= _NOTABLE * base and (is_small or most == "uneven work"):
        return FleetVerdict(bound_by="unknown", text="Which rank the others wait for cannot be told.")
    if is_small:
        return FleetVerdict(bound_by="own work", text=_of_own_work(assessed, unit, absent))
    if most == "late start":
        last = job.ranks[int(begins(job).argmax())].number
        text = (
            f"The ranks begin up to {duration(round(gains[most]))} apart, rank {last} last, and wait for one another "
            "because of that. What made it late came before the recording: record several steps, of which the first is "
            "left out."
        )
        return FleetVerdict(bound_by=most, text=text)
    after = duration(round(base - gains[most]))
    instead = f"{unit} would take {after} instead of {duration(round(base))}"
    if most == "stages":
        said = _of_stage(stages_of(job, assessed.lines), "makes", unit)
        text = f"{said}. With stages in balance, {instead}."
    elif most == "uneven work":
        gain = (
            _OF_TWO if job.roles.largest <= _PAIR else f"If every operation took its median over the ranks, {instead}."
        )
        text = f"{_of_no_one(job)} {gain}"
    else:
        text = f"{_of_transfers(absent)} If transfers took no time, {instead}."
    return FleetVerdict(bound_by=most, text=text)


def _of_untrusted(assessed: Assessed, unit: str) -> str:
    return (
        f"What holds up the job cannot be told: in the replay of all ranks {unit} takes "
        f"{duration(round(assessed.replayed_ns))}, but {duration(round(assessed.recorded_ns))} in the recording."
    )


def _of_own_work(assessed: Assessed, unit: str, absent: Absent) -> str:
    """Returns the verdict for a job that no rank with a trace holds up. If others have none, it says what a step takes
    at least, however long they were waited for."""
    no_one = "None of the ranks that have a trace" if absent.spent_ns else "No rank"
    text = f"{no_one} makes the others wait. {capital(unit)} takes {duration(round(assessed.replayed_ns))}, mostly "
    text += "the ranks' own work."
    if absent.spent_ns and not absent.unmatched_ns:
        text += f" Without transfers and waits, it would take {duration(round(assessed.silent_ns))}."
    return text


def _of_transfers(absent: Absent) -> str:
    """Returns the verdict's first sentence for a job whose ranks wait for no other rank that has a trace."""
    if not absent.spent_ns:
        return "The ranks wait for transfers, not for one another."
    return f"The ranks wait for transfers, or for {ranks_text(absent.ranks)}: the others do not wait for one another."


def _of_stage(stages: Sequence[Stage], verb: str, unit: str) -> str:
    """Returns the beginning of a sentence about the stage that computes longest. `verb` is "makes" or "seems to
    make"."""
    stage = max(stages, key=lambda each: each.own_ns)
    others = duration(round(float(np.mean([each.own_ns for each in stages if each.stage != stage.stage]))))
    return (
        f"Stage {stage.stage} ({ranks_text(stage.ranks)}) {verb} the pipeline wait: it computes for "
        f"{duration(stage.own_ns)} {per_unit(unit)}, the other stages for {others}{_why(stage.causes)}"
    )


def _of_unmatched(assessed: Assessed, unit: str, job: Job, sent: NDArray[np.float64]) -> FleetVerdict:
    """Returns the verdict for a job whose ranks spend long in sends and receives of unknown peers. `sent` has, for
    each rank, its time in all sends and receives, in ns per step.

    A stage is named if it computes notably longer than the others, and they spend notably longer in these operations.
    """
    stages = stages_of(job, assessed.lines)
    notable = _NOTABLE * assessed.replayed_ns
    if stages:
        own = np.array([stage.own_ns for stage in stages], dtype=np.float64)
        longest = int(own.argmax())
        mine = job.roles.role == longest
        here, elsewhere = float(sent[mine].mean()), float(sent[~mine].mean())
        if own[longest] - np.delete(own, longest).mean() >= notable <= elsewhere - here:
            text = (
                f"{_of_stage(stages, 'seems to make', unit)}. In sends and receives it spends "
                f"{duration(round(here))}, the others {duration(round(elsewhere))}. The peers of many of these are "
                "unknown, so what a change gains cannot be told."
            )
            return FleetVerdict(bound_by="stages", text=text)
    spent = duration(round(float(sent.mean())))
    text = (
        f"Which rank the others wait for cannot be told: the ranks spend {spent} {per_unit(unit)} in sends and "
        "receives, and the peers of many of these are unknown."
    )
    return FleetVerdict(bound_by="unknown", text=text)


def _apart(job: Job) -> float:
    """Returns how far apart the ranks begin the only step, in ns. 0 if there are several steps, of which the first does
    not count, or if the clocks of the ranks cannot be compared."""
    if job.steps > 1 or clock_fit(job).parts > 1:
        return 0.0
    return float(np.ptp(begins(job)))


def _of_no_one(job: Job) -> str:
    """Returns the verdict's first sentence for a job with uneven ranks, in which no rank is slower by more than chance
    explains."""
    late = np.zeros(len(job.ranks))
    for members in job.roles.members():
        over = job.usual[members] - lower_median(job.usual[members])
        late[members] = np.maximum(over, 0).mean(axis=1)
    first = int(late.argmax())
    if late[first] <= 2 * (late.sum() - late[first]):
        return "No single rank makes the others wait: they take turns."
    peers = int((job.roles.role == job.roles.role[first]).sum())
    return (
        f"The own work of rank {job.ranks[first].number} takes {duration(round(late[first]))} "
        f"{per_unit(job.ranks[0].summary.unit)} longer than that of {_peers(job, job.ranks[first].number)}, but "
        f"{counted(len(job.settled), 'step')} of {peers} ranks cannot tell whether that is chance."
    )


def _peers(job: Job, number: int) -> str:
    """Returns how to name the peers of the rank with this number: "its peers", or the rank if there is only one."""
    role = next(role for rank, role in zip(job.ranks, job.roles.role, strict=True) if rank.number == number)
    others = [job.ranks[index].number for index in np.flatnonzero(job.roles.role == role)]
    others.remove(number)
    return f"rank {others[0]}" if len(others) == 1 else "its peers"


def _of_turns(assessed: Assessed, unit: str, job: Job) -> str:
    """Returns the verdict for a job in which several ranks are late, each in a few steps only."""
    stragglers = assessed.stragglers
    steps = {step for each in stragglers for step in each.steps}
    kinds = Counter(each.causes[0].kind for each in stragglers if each.causes)
    why = f" ({kinds.most_common(1)[0][0]})" if kinds else ""
    ranks = capital(ranks_text([each.rank for each in stragglers]))
    return (
        f"{ranks} take turns: in {_times(steps, job)}, one of them makes the others wait{why}. "
        f"If every operation took its median over the ranks, {unit} would take {duration(round(assessed.ideal_ns))} "
        f"instead of {duration(round(assessed.replayed_ns))}."
    )


def _times(steps: Collection[int], job: Job) -> str:
    return f"{len(steps)} of the {counted(len(job.settled), 'step')} that count"


def _of_straggler(assessed: Assessed, unit: str, job: Job) -> str:
    """Returns the verdict for a job with stragglers. It is first about those that gain half of what all gain: if others
    are as late as one, mending that one alone gains little."""
    stragglers, base = assessed.stragglers, round(assessed.replayed_ns)
    after = [base - each for each in np.cumsum([straggler.gain_ns for straggler in stragglers]).tolist()]
    count = 1 + next(at for at, each in enumerate(after) if 2 * (base - each) >= base - after[-1])
    them, rest = stragglers[:count], stragglers[count:]
    often = [f" in {_times(each.steps, job)}" if each.steps else "" for each in them]
    late = [duration(each.late_ns) + ("" if each.steps else f" {per_unit(unit)}") for each in them]
    if count == 1 and assessed.late_too:
        first, many = them[0], len(assessed.late_too)
        text = (
            f"Rank {first.rank} and {counted(many, 'other')} ({ranks_text(assessed.late_too)}) make the rest wait: own "
            f"work of rank {first.rank} takes {late[0]} longer than that of its peers{_why(first.causes)}. If all of "
            "them worked as their peers do, "
        )
    elif count == 1:
        first = them[0]
        peers = _peers(job, first.rank)
        others = "the others" if len(job.ranks) > _PAIR else "the other"
        text = (
            f"Rank {first.rank} makes {others} wait{often[0]}: its own work {'there ' if first.steps else ''}takes "
            f"{late[0]} longer than that of {peers}{_why(first.causes)}. If it worked as {peers} "
            f"{'do' if peers == 'its peers' else 'does'}, "
        )
    else:
        each_of = [
            f"{by}{when} on rank {each.rank}{_why(each.causes)}"
            for each, by, when in zip(them[:_FEW], late[:_FEW], often[:_FEW], strict=True)
        ]
        more = f", and as long on {counted(count - _FEW, 'more rank')}" if count > _FEW else ""
        text = (
            f"{capital(ranks_text([each.rank for each in them]))} make the others wait: compared with their peers, own "
            f"work takes longer by {', '.join(each_of)}{more}. If all of them worked as their peers do, "
        )
    text += (
        f"{unit} would take {duration(after[count - 1])} instead of {duration(base)}: "
        f"{share(base - after[count - 1], base)} less."
    )
    if not rest:
        return text
    who = f"rank {rest[0].rank}{_why(rest[0].causes)}" if len(rest) == 1 else ranks_text([each.rank for each in rest])
    verb = "does" if len(rest) == 1 else "do"
    return f"{text} So {verb} {who}: if none of them were late, {unit} would take {duration(after[-1])}."


def _why(causes: Sequence[Cause]) -> str:
    if not causes:
        return ""
    cause = causes[0]
    where = cause.where
    at = f" at {where.file}:{where.line}" if where.file and cause.factor is None else ""
    if not at and where.function and cause.factor is None:
        at = f" at {where.function[:_PLACE_LENGTH]}"
    return f" ({cause.kind}{at}: {cause.text})"


def per_unit(unit: str) -> str:
    """Returns what follows a time that was spent in each `unit` of a job (`Summary.unit`)."""
    return "a step" if unit == "a step" else "in the run"
