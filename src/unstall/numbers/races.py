"""Finds the races of a function: pairs of source lines that use the same memory, while nothing
orders the two uses.

Races are found from the order that the program asks for (`blaming/races/`). So a race is found even
if the results do not show it. A race is also found on the virtual GPU, which computes everything in
order.
"""

from __future__ import annotations

from collections.abc import Sequence

from unstall.blaming.races.watch import RaceWatch
from unstall.blaming.result import Race, RaceSide
from unstall.errors import UnstallError
from unstall.numbers.run import called
from unstall.numbers.streams import wait_for_device
from unstall.numbers.ways import Way
from unstall.rounding.judge import Pair


def races_of(taken: Way) -> tuple[Race, ...]:
    """Runs a function and its backward pass, and returns the races in them.

    Before the run, waits until all work on the arguments is done. After the run, reads the results
    on the current stream. Returns () if this version of torch does not allow the search.
    """
    wait_for_device()
    try:
        watch = RaceWatch()
    except UnstallError:
        return ()
    try:
        for each in called(taken, None):
            each.detach().clone()
    finally:
        watch.stop()
    return watch.noted.races()


def race_at(races: Sequence[Race], first: Pair | None) -> Race | None:
    """Returns the race to report. It is the race at the source line whose result differs first
    (`first`). If this line has no race, it is the race that was found before all others.

    Returns None if there are no races.
    """
    if first is not None:
        place = first.seen.place
        for race in races:
            if _is_at(race.earlier, place.file, place.line) or _is_at(race.later, place.file, place.line):
                return race
    return next(iter(races), None)


def _is_at(side: RaceSide, file: str, line: int) -> bool:
    return side.where is not None and (side.where.file, side.where.line) == (file, line)


def about_race(race: Race | None, *, others: int, shows: bool) -> str:
    """Returns a sentence about a race.

    Args:
        race: The race. None if the source lines of the race are not known.
        others: The number of other races.
        shows: Whether results differ because of the race.
    """
    goes_away = "It goes away if each operator waits for the device: "
    if race is None:
        return (
            goes_away + "streams, or a copy and the CPU, use the same memory in no order. The two lines are not known."
        )
    what = race.title.removeprefix("Race: ")
    fix = f"{race.fix[:1].upper()}{race.fix[1:]}."
    more = f" {others:,} more pair{'s' * (others > 1)} of lines race." if others else ""
    return f"{goes_away if shows else 'The numbers agree here, but nothing orders two lines: '}{what}. {fix}{more}"
