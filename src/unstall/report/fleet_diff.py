"""The report of `unstall diff` for two jobs of many ranks."""

from __future__ import annotations

from collections.abc import Iterator

from unstall.document.document import Annotation, Bullets, Column, Document, Row, Span, Table, Words, words
from unstall.document.plain import plain
from unstall.figures import counted, duration, share
from unstall.fleets.difference import FleetDifference, JobSide, StragglerChange
from unstall.fleets.join import ranks_text
from unstall.report.fleet import USES
from unstall.report.wording import place, row

_NAMES = ("A", "B", "change")
_HELD_UP = {
    "straggler": "held up by a straggler",
    "stages": "held up by stages out of balance",
    "uneven work": "held up by uneven work",
    "communication": "held up by communication",
    "late start": "held up by a late start",
    "own work": "not held up by any rank",
    "unknown": "what holds it up is unknown",
}
"""Maps each value of `FleetVerdict.bound_by` to words for it."""


def document(result: FleetDifference) -> Document:
    """Returns the report of `unstall diff` for two jobs of many ranks, A and B."""
    text = conclusion(result)
    blocks = (_step(result), _stragglers(result), _uses(result), _lines(result))
    caveats = (Bullets(words("What limits this"), tuple(map(words, result.caveats))),) if result.caveats else ()
    return Document(
        title="unstall diff",
        about=(_about("A", result.a), _about("B", result.b)),
        caveats=caveats,
        summary=text,
        blocks=tuple(block for block in blocks if block is not None),
        data=result,
        annotations=(Annotation("notice", "unstall diff", text),),
    )


def conclusion(result: FleetDifference) -> str:
    """Returns sentences that compare the step times of jobs A and B.

    If job A has a straggler, they also say which step time A's report promised without its delay, and whether it is a
    straggler in B.
    """
    before, after = result.a.step_ns, result.b.step_ns
    if result.beyond_noise is None:
        said = (
            f"A step takes {duration(before)} in A, and {duration(after)} in B: the steps are too few to tell whether "
            "that is more than noise."
        )
    elif not result.beyond_noise:
        said = f"No change beyond noise: a step takes {duration(before)} in A, and {duration(after)} in B."
    else:
        word = "shorter" if after < before else "longer"
        changed = share(abs(after - before), before)
        said = f"A step is {changed} {word}: {duration(after)} instead of {duration(before)}."
    if result.promised_ns is not None:
        ranks = result.promised_ranks
        still = any(each.rank in ranks and each.status == "still" for each in result.stragglers)
        make = "makes" if len(ranks) == 1 else "make"
        said += (
            f" A's report promised {duration(result.promised_ns)} without the delay of {ranks_text(ranks)}, "
            f"which {'still' if still else 'no longer'} {make} the others wait."
        )
    return said


def _about(name: str, side: JobSide) -> Words:
    facts = (
        f"{counted(side.ranks, 'rank')}, {counted(side.steps, 'step')}, {_HELD_UP.get(side.bound_by, side.bound_by)}"
    )
    return words(f"{name}  ", Span(plain(side.source), "subject"), Span(f"  {facts}", "dim"))


def _step(result: FleetDifference) -> Table:
    columns = tuple(map(Column, _NAMES))
    return Table(words("A step of the job"), columns, (_both("step", (result.a.step_ns, result.b.step_ns)),))


def _both(name: str | Words, times: tuple[int, int]) -> Row:
    change = times[1] - times[0]
    return row(name, duration(times[0]), duration(times[1]), f"+{duration(change)}" if change > 0 else duration(change))


def _stragglers(result: FleetDifference) -> Table | None:
    rows = tuple(
        row(
            f"rank {each.rank}: {each.status}",
            *("" if late is None else duration(late) for late in each.late_ns),
            below=tuple(_cause(each)),
        )
        for each in result.stragglers
    )
    return Table(words("Who makes the others wait"), (Column("late in A"), Column("late in B")), rows) if rows else None


def _cause(change: StragglerChange) -> Iterator[Words]:
    if change.cause is not None:
        at = place(change.cause.where)
        yield words(f"{change.cause.kind}: {plain(change.cause.text)}", *((", ", Span(at, "place")) if at else ()))


def _uses(result: FleetDifference) -> Table | None:
    rows = []
    for use in result.uses:
        name = USES.get(use.use, use.use)
        rows += [_both(f"{name}: transfer", use.transfer_ns), _both(f"{name}: waiting", use.waiting_ns)]
    columns = tuple(map(Column, _NAMES))
    return Table(words("Communication, per rank and step"), columns, tuple(rows)) if rows else None


def _lines(result: FleetDifference) -> Table | None:
    rows = tuple(_both(words(Span(place(line.where), "place")), line.cost_ns) for line in result.lines)
    columns = tuple(map(Column, _NAMES))
    return Table(words("Lines, mean of all ranks"), columns, rows, limited=True) if rows else None
