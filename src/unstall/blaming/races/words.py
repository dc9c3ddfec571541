"""The report of races."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unstall.blaming.names import at_line, place
from unstall.blaming.result import Line, Race, RaceSide
from unstall.document.document import Annotation, Block, Entries, Entry, Span, Words, words
from unstall.document.plain import plain, short
from unstall.figures import counted, size
from unstall.race_words import kind_named, saw

WRONG = "results may be wrong, and differ from run to run"
NO_RACE = "no race was seen"


def sentence(races: Sequence[Race]) -> str:
    """Returns a sentence with the number of races, and with the two lines of the first one."""
    first = races[0]
    sides = f"{_at(first.earlier.where)} and {_at(first.later.where)}"
    return (
        f"{counted(len(races), 'race')}: {WRONG}; {'between' if len(races) == 1 else 'the first is between'} {sides}."
    )


def blocks_of(races: Sequence[Race]) -> Iterator[Block]:
    """Yields the part of a report that lists races, with one entry for each race. Yields nothing if
    there are no races.
    """
    if races:
        yield Entries(words(f"Races: {WRONG}"), (), tuple(_entry(race) for race in races))


def annotations_of(races: Sequence[Race]) -> Iterator[Annotation]:
    """Yields an annotation for each race: a message for the line that launched the later operation of the race."""
    for race in races:
        where = race.later.where
        yield Annotation(
            "error", race.title, saw_of(race), where.file if where else None, where.line if where else None
        )


def _entry(race: Race) -> Entry:
    details = [
        ("first", _side(race.earlier)),
        ("second", _side(race.later)),
        ("saw", words(f"{saw_of(race)}{_times(race)}")),
    ]
    if race.freed_at is not None:
        details.append(("freed", words(Span(place(race.freed_at), "place"))))
    details.append(("do", words(race.fix)))
    return Entry(words(race.title), (), tuple(details))


def saw_of(race: Race) -> str:
    """Returns a sentence that names the two operations of a race, and how much memory both of them use."""
    first, second = (
        f"{short(each.operator)} at {_at(each.where)} on {each.stream or 'the host'}"
        for each in (race.earlier, race.later)
    )
    return saw(kind_named(race.kind), first, second, size(race.bytes))


def _times(race: Race) -> str:
    return f"; {race.count:,} times" if race.count > 1 else ""


def _side(side: RaceSide) -> Words:
    if side.where is None:
        return words(f"{short(side.operator)}, by a line that is not known")
    reached = ", in the backward pass" if side.backward else ""
    replayed = f", replayed at {_at(side.replayed)}" if side.replayed else ""
    source = (": ", Span(plain(side.where.source), "name")) if side.where.source else ()
    return words(Span(place(side.where), "place"), f"{reached}{replayed}", *source)


def _at(line: Line | None) -> str:
    return at_line(line) if line else "a line that is not known"
