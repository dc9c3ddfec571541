"""The report of `unstall fleet`, on a job of many ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from unstall.document.document import (
    Annotation,
    Bullets,
    Column,
    Document,
    Entries,
    Entry,
    HeatMap,
    Lanes,
    LaneSets,
    Prose,
    Row,
    Span,
    Stretch,
    Table,
    Words,
    words,
)
from unstall.document.plain import plain, short
from unstall.figures import counted, duration, share, size
from unstall.fleets.join import ranks_text
from unstall.fleets.result import Cause, FleetResult, GroupUse, Member, Moment, RankRow, Straggler
from unstall.locate.collectives import Kind
from unstall.report.wording import compared, place, row, saved

USES = {
    "data": "data parallel",
    "tensor": "tensor parallel",
    "pipeline": "pipeline",
    "expert": "expert parallel",
    "sequence": "sequence parallel",
    "other": "other",
}
"""Maps each use of a group of ranks, as `GroupUse.use` names it, to the term that reports show."""
_MOST_NOTES = 20
_MOST_STEPS = 12
_PAIR = 2
_NOTHING = 0.0005  # of a step: a gain of less is none
_MORE = 1.1  # of the gain: longer waits are explained
_BESIDE = 2  # times as long as all causes make a rank late: most of such a cause costs no time
_UNEVEN = 1.05  # of the bytes that exchanges bring: less is not worth a line


def document(result: FleetResult) -> Document:
    """Returns the report of `unstall fleet` on one job. With edits, it begins with what they change."""
    step, verdict = _step(result), result.verdict.text
    blocks = (
        *((step, Prose((words(verdict),))) if result.edits else ()),
        _stragglers(result),
        None if result.edits else step,
        _map(result),
        _communication(result),
        _stages(result),
        _ranks(result),
        _moments(result),
        _lines(result),
        _notes(result),
    )
    return Document(
        title="unstall fleet",
        about=tuple(_about(result)),
        summary=_answer(result) if result.edits else verdict,
        blocks=tuple(block for block in blocks if block is not None),
        data=result,
        annotations=tuple(_annotations(result)),
    )


def _about(result: FleetResult) -> Iterator[Words]:
    yield words(Span(plain(result.source), "subject"))
    of = f" of {result.world_size:,}" if result.world_size else ""
    clocks = result.clocks
    agree = ""
    if clocks.residual_ns is not None:
        agree = f"; clocks agree to {duration(clocks.residual_ns)}"
    elif clocks.clocks > 1:
        agree = "; no common collective compares the clocks"
    steps = counted(result.steps, "step") if result.unit == "a step" else "no steps were found in runs"
    yield words(Span(f"{counted(len(result.ranks), 'rank')}{of} · {steps} of {duration(result.step_ns)}{agree}", "dim"))


def _answer(result: FleetResult) -> str:
    """Returns a sentence that compares the step time after all edits with that before them."""
    return compared(
        result.replayed_step_ns,
        result.edits[-1].step_ns,
        unit=result.unit,
        over=_over(result),
        error_ns=result.error_ns,
        by=f" with {plain(result.edits[0].edit)}"
        if len(result.edits) == 1
        else f" with these {len(result.edits)} edits",
    )


def _stragglers(result: FleetResult) -> Entries | None:
    entries = tuple(_entry(each, result) for each in result.stragglers)
    title = "Who makes the others wait" + (" (gains add up)" if len(entries) > 1 else "")
    return Entries(words(title), ("late", "gain"), entries) if entries else None


def _entry(straggler: Straggler, result: FleetResult) -> Entry:
    details = [("why", _cause(cause, straggler.late_ns)) for cause in straggler.causes]
    if fix := next((cause.fix for cause in straggler.causes if cause.fix), None):
        details.append(("do", words(plain(fix))))
    if not straggler.causes:
        details.append(("why", words("unknown: in its trace, no line takes longer than on its peers")))
    others = counted(len(result.ranks) - 1, "rank")
    seen = (
        *_late_steps(straggler, result),
        f"the job waits for this rank alone for {duration(straggler.waited_for_ns)} {_over(result)}",
        f"probability of such a delay by chance: {_chance(straggler.chance)} (compared with {others})",
    )
    details.append(("saw", words("; ".join(seen))))
    details += [("gain", words(text)) for text in _about_gain(straggler, result)]
    return Entry(
        words(Span(f"rank {straggler.rank}", "subject")),
        (duration(straggler.late_ns), saved(straggler.gain_ns, result.replayed_step_ns, error_ns=result.error_ns)),
        tuple(details),
    )


def _late_steps(straggler: Straggler, result: FleetResult) -> list[str]:
    """Returns a list with one phrase: in which steps a rank is late. The list is empty if it is late in general."""
    steps = straggler.steps
    if not steps:
        return []
    more = f" and {len(steps) - _MOST_STEPS} more" if len(steps) > _MOST_STEPS else ""
    numbers = ", ".join(map(str, steps[:_MOST_STEPS]))
    return [f"late in {'step' if len(steps) == 1 else 'steps'} {numbers}{more} only, of 2 to {result.steps}"]


def _about_gain(straggler: Straggler, result: FleetResult) -> list[str]:
    """Returns a list with one sentence: why the gain differs from the delay and from the wait for the rank. The list is
    empty if it does not."""
    said = ["the mean of all steps"] if straggler.steps else []
    if straggler.waited_for_ns > _MORE * max(straggler.gain_ns, result.error_ns):
        said.append("less than the wait, as the others would idle or compute in part of it anyway")
    return ["; ".join(said)] if said else []


def _cause(cause: Cause, late_ns: int | None = None) -> Words:
    """Returns a cause in words. `late_ns` is what it makes the rank late by, with all other causes, in ns per step."""
    at = place(cause.where)
    beside = ", mostly beside other work" if late_ns is not None and cause.late_ns > _BESIDE * late_ns else ""
    head = words(f"{cause.kind} ({duration(cause.late_ns)}{beside}): {plain(cause.text)}")
    if not at:
        return head
    return words(head, ", most at " if cause.factor is not None else ", at ", Span(at, "place"))


def _chance(chance: float) -> str:
    return f"p = {chance:.1g}" if chance >= 1e-6 else "p < 0.000001"


def _step(result: FleetResult) -> Table:
    replayed = share(result.error_ns, result.step_ns) if result.step_ns else "0 %"
    replay = f"the replay of all ranks takes {duration(result.replayed_step_ns)}, {replayed} off"
    goes_on = duration(result.replayed_step_ns) != duration(result.step_ns)
    if goes_on and abs(result.replayed_step_ns - result.step_ns) > result.error_ns + 1:  # rounded
        replay = f"the replay of these steps is {replayed} off; if the job goes on: {duration(result.replayed_step_ns)}"
    rows = [row("as recorded", duration(result.step_ns), "", below=[words(Span(replay, "dim"))])]
    rows += [
        row(
            words(Span(edit.edit, "same")),
            duration(edit.step_ns),
            saved(edit.gain_ns, result.replayed_step_ns, error_ns=result.error_ns),
            below=[words(Span(plain(text), "dim")) for text in (edit.about, *edit.notes) if text],
        )
        for edit in result.edits
    ]
    if _is_told(result):
        rows.append(_ideal(result))
    return Table(
        words("A step of the job" if result.unit == "a step" else "The run"),
        (Column("takes"), Column("gain")),
        tuple(rows),
    )


def _ideal(result: FleetResult) -> Row:
    told = f"slowdown {result.slowdown:.3f}"
    if result.paper_slowdown is not None:
        told += f"; {result.paper_slowdown:.3f} as the what-if paper defines it (device only, without the host)"
    gain_ns = result.replayed_step_ns - result.ideal_step_ns
    return row(
        "if every rank were like its peers",
        duration(result.ideal_step_ns),
        saved(gain_ns, result.replayed_step_ns, error_ns=result.error_ns),
        below=[words(Span(told, "dim"))],
    )


def _is_told(result: FleetResult) -> bool:
    """Returns whether the recording can tell what a step takes if every rank is like its peers. One step that the ranks
    begin apart cannot. Nor can two ranks, unless one of them is late: one of two is slower in each operation by chance
    alone."""
    if result.verdict.bound_by == "late start":
        return False
    largest = max(Counter(each.stage for each in result.ranks).values())
    gain_ns = result.replayed_step_ns - result.ideal_step_ns
    return bool(result.stragglers) or largest > _PAIR or gain_ns <= max(result.error_ns, _NOTHING * result.step_ns)


def _map(result: FleetResult) -> HeatMap | None:
    if not any(any(each.waits_by_step) for each in result.ranks):
        return None
    most = max(max(each.waits_by_step, default=0) for each in result.ranks)
    columns = tuple(str(step + 1) for step in range(result.steps))
    return HeatMap(
        title=words("Who waits in which step, and for whom"),
        rows=tuple(f"rank {each.rank}" for each in result.ranks),
        columns=columns,
        values=tuple(tuple(waits / max(most, 1) for waits in each.waits_by_step) for each in result.ranks),
        marks=tuple(
            tuple("" if who < 0 or not waits else str(who) for who, waits in _of_steps(each)) for each in result.ranks
        ),
        facts=tuple(
            tuple(_fact(each, step, who, waits) for step, (who, waits) in enumerate(_of_steps(each)))
            for each in result.ranks
        ),
        legend=f"shade: time spent waiting, up to {duration(most)}; number: the rank for which this rank waits most",
    )


def _of_steps(rank: RankRow) -> list[tuple[int, int]]:
    return list(zip(rank.blames_by_step, rank.waits_by_step, strict=True))


def _fact(rank: RankRow, step: int, who: int, waits: int) -> str:
    whom = f", most for rank {who}" if who >= 0 else ""
    own = duration(rank.own_by_step[step])
    return f"rank {rank.rank}, step {step + 1}: waits for {duration(waits)}{whom}; own work {own}"


def _communication(result: FleetResult) -> Table | None:
    rows = tuple(
        row(
            USES.get(group.use, group.use),
            duration(group.transfer_ns),
            duration(group.waiting_ns),
            duration(group.exposed_ns),
            duration(group.hidden_ns),
            below=[words(Span(text, "dim")) for text in _of_group(group)],
        )
        for group in result.groups
    )
    columns = Column("transfer"), Column("waiting"), Column("exposed"), Column("hidden", extra=True)
    return Table(words(f"Communication, per rank {_and_step(result)}"), columns, rows) if rows else None


def _of_group(group: GroupUse) -> Iterator[str]:
    sent = f", {size(group.sent_bytes)} sent" if group.sent_bytes else ""
    told = "" if group.told_by == "name" else "; this use is inferred from the pattern of operations"
    members = f" of {counted(group.ranks, 'rank')}" if group.ranks > 0 else ""
    yield f"{counted(group.groups, 'group')}{members}: {_often(group.operations)}{sent}{told}"
    if group.imbalance is not None and group.imbalance > _UNEVEN:
        yield f"uneven: rank {group.imbalanced_rank} receives {group.imbalance:.2f} times the mean"


def _often(operations: float) -> str:
    return "1 operation" if operations == 1 else f"{operations:g} operations"


def _stages(result: FleetResult) -> Table | None:
    rows = tuple(
        row(
            f"stage {stage.stage}",
            duration(stage.own_ns),
            duration(stage.bubble_ns),
            share(stage.bubble_ns, result.step_ns),
            below=[words(Span(ranks_text(stage.ranks), "dim")), *map(_cause, stage.causes[:1])],
        )
        for stage in result.stages
    )
    columns = Column("own work"), Column("bubbles"), Column("of a step")
    return Table(words("Pipeline"), columns, rows) if rows else None


def _ranks(result: FleetResult) -> Table:
    ordered = sorted(result.ranks, key=lambda each: (-each.waited_for_ns, each.rank))
    rows = tuple(
        row(
            f"rank {each.rank}",
            duration(each.own_ns),
            duration(each.transfer_ns),
            duration(each.waiting_ns),
            duration(each.waited_for_ns),
        )
        for each in ordered
    )
    columns = Column("own work"), Column("transfer", extra=True), Column("waits"), Column("waited for")
    spread = f"own work differs by {100 * result.own_spread:.1f} %"
    if result.steps > 2:  # the first does not count, and one step alone does not differ
        spread += f", steps by {100 * result.step_spread:.1f} %"
    title = f"Ranks, {_over(result)} ({spread})"
    return Table(words(title), columns, rows, limited=True)


def _moments(result: FleetResult) -> LaneSets | None:
    sets = tuple(map(_lanes, result.moments))
    if not sets:
        return None
    return LaneSets(
        title=words("The ranks around one collective, on one clock"),
        sets=sets,
        legend=(("work", "own work"), ("wait", "waiting for others"), ("transfer", "transfer")),
    )


def _lanes(moment: Moment) -> Lanes:
    whom = f" for rank {moment.for_rank}" if moment.for_rank is not None else ""
    among = f"in {short(moment.group)}"
    if moment.kind == Kind.SEND_RECEIVE.value:  # the group has more ranks
        among = f"between {ranks_text([member.rank for member in moment.members])}, {among}"
    of = f" of {size(moment.sent_bytes)}" if moment.sent_bytes else ""
    number = f"collective {moment.number} of " if moment.number else ""
    what = f"{moment.kind}{of} {among}"
    return Lanes(
        title=f"{number}step {moment.step}: {what}, {duration(moment.waited_ns)} waited{whom}",
        about=f"{what}, {number}step {moment.step}: its members wait for "
        f"{duration(moment.waited_ns)} in all{', most' + whom if whom else ''}",
        lanes=tuple((f"rank {member.rank}", tuple(_stretches(member, moment))) for member in moment.members),
    )


def _stretches(member: Member, moment: Moment) -> Iterator[Stretch]:
    last = max(each.start for each in moment.members)
    until = min(last, member.end)
    doing = f", most at {place(member.doing)}" if member.doing is not None else ""
    if member.start > member.free:
        text = f"rank {member.rank}: {duration(member.start - member.free)} of its own work{doing}"
        yield Stretch("work", member.free, member.start, text)
    if until > member.start:
        text = f"rank {member.rank} waits for {duration(until - member.start)}"
        yield Stretch("wait", member.start, until, text)
    begin = max(until, member.start)
    if member.end > begin:
        yield Stretch("transfer", begin, member.end, f"rank {member.rank}: transfer, {duration(member.end - begin)}")


def _lines(result: FleetResult) -> Table | None:
    waits = any(line.wait_ns for line in result.lines)
    rows = tuple(
        row(
            words(Span(place(line.where), "place")),
            duration(line.device_ns),
            duration(line.host_ns),
            *([duration(line.wait_ns)] if waits else []),
            duration(line.most_ns),
            f"rank {line.most_rank}",
        )
        for line in result.lines
    )
    columns = (
        Column("device"),
        Column("host"),
        *([Column("waits")] if waits else []),
        Column("most"),
        Column("on"),
    )
    return Table(words(f"Lines, mean of all ranks, {_over(result)}"), columns, rows, limited=True) if rows else None


def _notes(result: FleetResult) -> Bullets | None:
    items = [words(Span(plain(each.path), "place"), f" is left out: {plain(each.why)}") for each in result.not_read]
    if result.missing:
        have, them = ("has", "it") if len(result.missing) == 1 else ("have", "them")
        items.append(
            words(
                f"{ranks_text(result.missing)} of the job {have} no trace that could be used: time in which others "
                f"wait for {them} counts as transfer"
            )
        )
    clocks = result.clocks
    if clocks.most_offset_ns or clocks.most_drift_ppm:
        items.append(
            words(
                f"the clocks of {counted(clocks.clocks, clocks.of)} were up to {duration(clocks.most_offset_ns)} apart "
                f"and drifted by up to {clocks.most_drift_ppm:g} ppm; the report corrects both"
            )
        )
    items += [words(plain(note)) for note in result.notes[:_MOST_NOTES]]
    if len(result.notes) > _MOST_NOTES:
        items.append(words(f"{len(result.notes) - _MOST_NOTES:,} more notes are in the JSON"))
    return Bullets(words("Notes"), tuple(items)) if items else None


def _annotations(result: FleetResult) -> Iterator[Annotation]:
    where = next((cause.where for each in result.stragglers for cause in each.causes if cause.where.file), None)
    yield Annotation(
        "warning" if result.stragglers else "notice",
        "unstall fleet",
        result.verdict.text,
        file=where.file if where else None,
        line=where.line if where else None,
    )


def _over(result: FleetResult) -> str:
    return "a step" if result.unit == "a step" else "in the run"


def _and_step(result: FleetResult) -> str:
    return "and step" if result.unit == "a step" else "in the run"


def names_of(result: FleetResult) -> Sequence[str]:
    """Returns the paths that `result` names, except those of source files: where the job's traces
    lie, the trace of each rank, and each file that was not read.
    """
    return [result.source, *(each.path for each in result.ranks), *(each.path for each in result.not_read)]
