"""The function `explain_fleet`: turns the traces of all ranks of a job into a `FleetResult`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from unstall._version import __version__
from unstall.errors import UsageError
from unstall.figures import counted, duration
from unstall.fleets.absent import missing_ranks, world_size
from unstall.fleets.assess import (
    Assessed,
    assess,
    clock_fit,
    fleet_lines,
    group_uses,
    rank_rows,
    recorded_steps,
    spread,
    stages_of,
)
from unstall.fleets.edits import ABOUT, FleetEdit, apply_edit, parse_edit, slowdown
from unstall.fleets.executors import Executor, executor_of
from unstall.fleets.gather import Gathered, find_traces, gather, notes_of
from unstall.fleets.job import Job, make_job
from unstall.fleets.join import ranks_text
from unstall.fleets.mapping import Task
from unstall.fleets.moments import moments_of
from unstall.fleets.result import FleetEditStep, FleetResult
from unstall.fleets.roles import roles_of
from unstall.fleets.summary import Rank
from unstall.fleets.verdict import per_unit, verdict_of
from unstall.fleets.waiting import waiting
from unstall.what_if.edits import about, parse

_OVERHEAD = 0.01  # of a step: less that the recorder adds is not told
_RESOLUTION_NS = 1_000  # of the times in most traces: ranks whose clocks agree better came together, if any did


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
        verdict=verdict_of(job, assessed),
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
        f"{per_unit(job.ranks[0].summary.unit)}, longer than the recorded steps take, as its device had earlier work. "
        "If the job goes on, it is as slow as this host"
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
