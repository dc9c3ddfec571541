"""The function `explain_fleet`: turns the traces of all ranks of a job into a `FleetResult`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from unstall._version import __version__
from unstall.errors import UsageError
from unstall.figures import capital, counted, duration, share
from unstall.fleets.assess import (
    Absent,
    Assessed,
    absent_of,
    assess,
    begins,
    clock_fit,
    fleet_lines,
    group_uses,
    missing_ranks,
    moments_of,
    rank_rows,
    recorded_steps,
    sends_and_receives,
    spread,
    stages_of,
    world_size,
)
from unstall.fleets.edits import ABOUT, FleetEdit, apply_edit, parse_edit, slowdown
from unstall.fleets.executors import Executor, executor_of
from unstall.fleets.gather import Gathered, find_traces, gather, notes_of
from unstall.fleets.idle_host import lower_median
from unstall.fleets.job import Job, make_job
from unstall.fleets.join import ranks_text
from unstall.fleets.mapping import Task
from unstall.fleets.result import Cause, FleetEditStep, FleetResult, FleetVerdict, Stage
from unstall.fleets.roles import roles_of
from unstall.fleets.summary import Rank
from unstall.fleets.waiting import waiting
from unstall.result import UNTRUSTED
from unstall.what_if.edits import about, parse

_NOTABLE = 0.05  # of a step: what gains less does not hold up the job
_OVERHEAD = 0.01  # of a step: less that the recorder adds is not told
_PLACE_LENGTH = 60
_RESOLUTION_NS = 1_000  # of the times in most traces: ranks whose clocks agree better came together, if any did
_PAIR = 2
_OF_TWO = (
    "What it gains if they work alike cannot be told, as of two ranks one is slower in each operation by chance alone."
)
_FEW = 2  # ranks that are late in single steps and are still named one by one


def explain_fleet(
    source: str | Path | Iterable[str | Path],
    *,
    edits: Sequence[str] = (),
    step: str | None = None,
    user: Sequence[str] = (),
    on: str | Executor | None = None,
    cache: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> FleetResult:
    """Explains a training job of many ranks as one. The arguments are those of `unstall.fleet`.

    Args:
        source: A folder, a glob, or a list of traces.
        edits: Changes to replay, such as "no-stragglers" or "3/remove-syncs". They are replayed in this order, but
            edits of `unstall whatif` come before edits of the whole job.
        step: The name (or glob) of the annotation around one step. None: steps are detected.
        user: Globs of the files that count as the user's code. If empty, these are all files except framework files.
        on: Where the traces are read: None for processes of this machine, "ray", "ray://ADDRESS:PORT", or an executor.
        cache: Whether the summaries of the ranks are kept in the user's cache folder.
        progress: If not None, called with the number of traces read and the number of all traces.

    Raises:
        TraceError: None of the files can be used.
        UsageError: There are no files, an edit or the annotation does not exist, or the executor cannot be used.
    """
    chosen = [parse_edit(text) for text in edits]
    executor = executor_of(on) if on is None or isinstance(on, str) else on
    paths = find_traces(source, getattr(executor, "find", None))

    def tasks(edits_of: Mapping[str, tuple[str, ...]]) -> list[Task]:
        return [
            Task(path=path, step=step, user=tuple(user), edits=edits_of.get(path, ()), cache=cache) for path in paths
        ]

    gathered = gather(tasks({}), executor, progress)
    job = _job(gathered)
    assessed = assess(job)
    steps = []
    if chosen:
        steps = _edited(
            job, gathered, assessed, chosen, lambda edits_of, trying: gather(tasks(edits_of), executor, None, trying)
        )
    return _result(source, gathered, job, assessed, tuple(steps))


def _job(gathered: Gathered) -> Job:
    ranks = gathered.ranks
    return make_job(ranks, gathered.joined, waiting(ranks, gathered.joined), roles_of(ranks, gathered.joined))


def _edited(
    job: Job,
    gathered: Gathered,
    assessed: Assessed,
    edits: Sequence[FleetEdit],
    again: Callable[[Mapping[str, tuple[str, ...]], Collection[str]], Gathered],
) -> list[FleetEditStep]:
    """Makes the edits one after the other. Returns the step time after each edit. Edits of `unstall whatif` come before
    edits of the whole job, because they are made while traces are summarised.

    `again` summarises the traces again. Its arguments are the edits of each trace by path, and the paths of the traces
    whose last edit may not fit.
    """
    path_of = {rank.number: rank.summary.path for rank in gathered.ranks}
    made: list[FleetEditStep] = []
    edits_of: dict[str, tuple[str, ...]] = {}
    before, current, notes = assessed.replayed_ns, job, 0
    for place, edit in sorted(enumerate(edits), key=lambda each: each[1].of_job):
        if edit.of_job:
            current = apply_edit(current, edit)
            said, what = (*_put_off(edits[place:]), *current.notes[notes:]), ABOUT[edit.name]
            notes = len(current.notes)
        else:
            text = edit.text.partition("/")[2] if edit.rank is not None else edit.text
            if edit.rank is not None and edit.rank not in path_of:
                raise UsageError(f"{edit.text}: there is no trace of rank {edit.rank}")
            trying = list(path_of.values()) if edit.rank is None else [path_of[edit.rank]]
            wanted = {path: (*edits_of.get(path, ()), text) for path in trying}
            changed = again({**edits_of, **wanted}, wanted.keys())
            unfit = {each.path for each in changed.unedited}
            edits_of |= {path: its for path, its in wanted.items() if path not in unfit}
            current = _job(changed)
            what = about(parse(text))
            said = tuple(dict.fromkeys(note for rank in current.ranks for note in _new_notes(rank, job)))
            said = (*_unchanged(changed), *said)
        after = current.times.step_ns
        made.append(
            FleetEditStep(
                edit=edit.text, about=what, step_ns=round(after), gain_ns=round(before - after), notes=tuple(said)
            )
        )
        before = after
    return made


def _put_off(edits: Sequence[FleetEdit]) -> list[str]:
    """Returns a list with one sentence if the first of `edits`, which is an edit of the whole job, is made after others
    of them. Otherwise the list is empty."""
    sooner = [each.text for each in edits if not each.of_job]
    return [f"made after {', '.join(sooner)}: those of the whole job are made last"] if sooner else []


def _unchanged(gathered: Gathered) -> list[str]:
    """Returns a sentence for each reason why an edit does not fit some ranks, which are as before it then."""
    number_of = {rank.summary.path: rank.number for rank in gathered.ranks}
    by_why: dict[str, list[int]] = {}
    for each in gathered.unedited:
        if each.path in number_of:
            by_why.setdefault(each.why, []).append(number_of[each.path])
    return [f"this changes nothing of {ranks_text(numbers)}: {why}" for why, numbers in by_why.items()]


def _new_notes(rank: Rank, job: Job) -> tuple[str, ...]:
    known = {note for each in job.ranks for note in each.summary.inferred}
    return tuple(note for note in rank.summary.inferred if note not in known)


def _result(
    source: str | Path | Iterable[str | Path],
    gathered: Gathered,
    job: Job,
    assessed: Assessed,
    edits: tuple[FleetEditStep, ...],
) -> FleetResult:
    rows = rank_rows(job)
    clocks = clock_fit(job)
    recorded = recorded_steps(job)
    return FleetResult(
        version=__version__,
        source=str(source) if isinstance(source, str | Path) else counted(len(job.ranks), "file"),
        world_size=world_size(job),
        missing=missing_ranks(job),
        not_read=gathered.not_read,
        ranks_by=gathered.ranks_by,
        unit=job.ranks[0].summary.unit,
        steps=job.steps,
        step_ns=round(assessed.recorded_ns),
        step_spread=spread(recorded[1:] if len(recorded) > 1 else recorded),
        own_spread=spread(job.usual.mean(axis=1)),
        replayed_step_ns=round(assessed.replayed_ns),
        error_ns=round(assessed.error_ns),
        clocks=clocks,
        verdict=_verdict(job, assessed),
        transfer_ns=round(float(np.mean([row.transfer_ns for row in rows]))),
        waiting_ns=round(float(np.mean([row.waiting_ns for row in rows]))),
        ranks=rows,
        stragglers=assessed.stragglers,
        groups=group_uses(job),
        stages=stages_of(job, assessed.lines),
        lines=fleet_lines(job, assessed.lines),
        ideal_step_ns=round(assessed.ideal_ns),
        slowdown=round(assessed.replayed_ns / max(assessed.ideal_ns, 1), 4),
        paper_slowdown=round(slowdown(job), 4) if len(job.joined) else None,
        edits=edits,
        moments=moments_of(job),
        notes=(
            *_own_notes(gathered, job, clocks.parts),
            *_host_note(job, assessed),
            *_recorder_note(job, assessed),
            *notes_of(gathered),
        ),
    )


def _own_notes(gathered: Gathered, job: Job, parts: int) -> tuple[str, ...]:
    notes = [*gathered.joined.notes, *gathered.notes]
    if gathered.ranks_by != "distributedInfo":
        notes.append("the ranks are taken from the files' names, because the traces have no distributedInfo")
    lengths = {rank.steps for rank in job.ranks}
    if len(lengths) > 1:
        notes.append(f"the ranks have {min(lengths)} to {max(lengths)} steps: only the first {job.steps} are compared")
    if job.times.uncoupled:
        notes.append(
            f"{counted(job.times.uncoupled, 'operation')} could not be replayed together: the ranks call them in "
            "different orders"
        )
    if parts > 1:
        said = (
            f"{parts} parts of the job share only collectives with a root, in which some ranks go on before others come"
            if _meet_across_parts(job)
            else f"no common collective connects {parts} parts of the job"
        )
        notes.append(f"{said}: times of different parts cannot be compared, and their first steps count as one moment")
    for name, apart in job.waiting.apart:
        notes.append(
            f"the ranks on machine {name} have clocks that differ by up to {duration(apart)}, so each rank's clock is "
            "aligned by itself"
        )
    if job.waiting.uneven:
        notes.append(
            f"some of the clocks are compared by {job.waiting.uneven}, which end less evenly than other collectives"
        )
    residual, waits = job.waiting.clocks.residual_ns, job.waiting.blame
    if residual and not np.isfinite(residual) and parts < len(job.waiting.clocks.offset):
        notes.append(
            "too few collectives compare the clocks to tell how well these agree, so it cannot be told who came last"
        )
    if residual and np.isfinite(residual) and len(waits) and residual > max(float(np.median(waits)), _RESOLUTION_NS):
        late = int((waits <= residual).sum())
        notes.append(
            f"the clocks agree to {duration(round(residual))} only, so it cannot be told who came last in "
            f"{counted(late, 'operation')} of {len(waits):,}"
        )
    return tuple(notes)


def _meet_across_parts(job: Job) -> bool:
    """Returns True if an operation has members in several parts of the job, whose clocks could not be compared."""
    joined, first = job.joined, job.joined.first[:-1]
    if not len(joined):
        return False
    part = job.waiting.clocks.part[job.waiting.clock_of[joined.rank]]
    return bool((np.maximum.reduceat(part, first) != np.minimum.reduceat(part, first)).any())


def _host_note(job: Job, assessed: Assessed) -> list[str]:
    """Returns a list with one sentence: whose host takes longer than the recorded steps, so that a job which goes on
    does, too. The list is empty if no host does."""
    window, host_work = job.times.window_ns, job.times.host_work
    if host_work.max() - window <= max(_OVERHEAD * window, assessed.error_ns):
        return []
    return [
        f"the host of rank {job.ranks[int(host_work.argmax())].number} works for {duration(round(host_work.max()))} "
        f"{_over(job.ranks[0].summary.unit)}, longer than the recorded steps take, as its device had earlier work. If "
        "the job goes on, it is as slow as this host"
    ]


def _recorder_note(job: Job, assessed: Assessed) -> list[str]:
    """Returns a list with one sentence: by how much the recorder changed the step time. The list is empty if the
    recorder did not measure steps without recording, or if the change is less than 1 %."""
    plain = [each for rank in job.ranks if (each := rank.summary.plain_step_ns) is not None]
    if not plain:
        return []
    usual = float(np.median(plain))
    over = assessed.recorded_ns / max(usual, 1) - 1
    if abs(over) < _OVERHEAD:
        return []
    return [
        f"{job.ranks[0].summary.unit} takes {duration(round(usual))} without the recorder, as measured on "
        f"{counted(len(plain), 'rank')}. The times here are as recorded, {abs(over):.1%} "
        f"{'longer' if over > 0 else 'shorter'}".replace("%", " %")
    ]


def _verdict(job: Job, assessed: Assessed) -> FleetVerdict:
    """Returns what holds up the job. If ranks have no trace, the text ends with a sentence on the time with them."""
    absent = absent_of(job)
    verdict = _of_present(job, assessed, absent)
    if not absent.spent_ns:
        return verdict
    them = "it" if len(absent.ranks) == 1 else "them"
    others, spend = ("the others", "spend") if len(job.ranks) > 1 else (f"rank {job.ranks[0].number}", "spends")
    said = (
        f"No trace of {ranks_text(absent.ranks)} could be used: {others} may wait for {them}, and {spend} up to "
        f"{duration(absent.spent_ns)} {_over(job.ranks[0].summary.unit)} in operations with {them}."
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
        f"{duration(stage.own_ns)} {_over(unit)}, the other stages for {others}{_why(stage.causes)}"
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
        f"Which rank the others wait for cannot be told: the ranks spend {spent} {_over(unit)} in sends and receives, "
        "and the peers of many of these are unknown."
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
        f"{_over(job.ranks[0].summary.unit)} longer than that of {_peers(job, job.ranks[first].number)}, but "
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
    late = [duration(each.late_ns) + ("" if each.steps else f" {_over(unit)}") for each in them]
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


def _over(unit: str) -> str:
    return "a step" if unit == "a step" else "in the run"
