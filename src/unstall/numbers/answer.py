"""`Numbers` and `Row`: the result of `compare_numbers`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from unstall._version import __version__
from unstall.blaming.result import Race, RaceSide
from unstall.document.document import Annotation, Document, Entries, Entry, Prose, Span, Words, words
from unstall.document.shown import Shown
from unstall.numbers.patterns import Pattern
from unstall.numbers.picture import chart, finite, line_of, name_of, place_data, run_data
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.operators import NOWHERE, Place

_FINE = ("equal", "rounding", "nondeterministic", "batch")
_MANY = 10  # from here on, figures are shown without decimals
_FAR = 10_000  # from here on, a figure of how far beyond the limit says nothing more
_MOST_ADDED = 3  # operators that are shown


@dataclass(frozen=True, slots=True)
class Row:
    """The result of running a function in one way, such as on another device: this run, compared
    with a run of the unchanged function.

    Attributes:
        way: The name of the way.
        found: The comparison of the two runs; None if the function could not run in this way.
        kind: "equal" (the same bits), "rounding", "nondeterministic" (rounding that varies from run
            to run), "batch" (rounding that depends on the size of the batch), "failed", or
            "unknown" (the size of rounding errors is not known). The kinds of all other differences
            are "race", "random", "state", "type", "shape", "TF32", "reduced precision", "factor",
            and "different".
        sentence: What `kind` means for these runs.
        race: The two operations that race. None if there is no race, or if the operations are not
            known.
        why: An explanation of the rounding; "" if there is none.
        pattern: The pattern by which the elements of a tensor differ, such as a factor; None if no
            pattern is known.
    """

    way: str
    found: Compared | None
    kind: str
    sentence: str
    race: Race | None = None
    why: str = ""
    pattern: Pattern | None = None

    @property
    def agrees(self) -> bool:
        """Whether rounding explains all differences between the two runs."""
        return self.kind in _FINE


@dataclass(frozen=True, slots=True, repr=False)
class Numbers(Shown):
    """The result of `compare_numbers`: a row for each way of running a function, such as on another
    device.

    Attributes:
        rows: The rows.
        tensors: The number of tensors in the reference run. The reference run is the one with which
            all ways are compared.
        subject: A phrase for the reference run, such as "the function as it is".
    """

    rows: tuple[Row, ...]
    tensors: int
    subject: str = "the function as it is"

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, way: str) -> Row:
        """Returns the row of the way with the name `way`.

        Raises:
            KeyError: There is no such row.
        """
        for row in self.rows:
            if row.way == way:
                return row
        raise KeyError(way)

    @property
    def agrees(self) -> bool:
        """Whether rounding explains all differences, for each way of running the function."""
        return all(row.agrees for row in self.rows)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the report: for each way of running the function, a verdict and the first tensor that differs."""
        entries = tuple(_entry(row, scrub_paths=scrub_paths) for row in self.rows)
        charts = [
            chart(row.way, row.found, scrub_paths=scrub_paths)
            for row in self.rows
            if row.found is not None and row.kind != "unknown"
        ]
        meaning = words(
            "of limit: the largest difference of a result, a gradient, or an argument after the run, divided by "
            "the largest difference that is still rounding (99.9 % confidence for each way)"
        )
        return Document(
            title="Numbers",
            about=(words(f"{self.tensors:,} tensors were seen in {self.subject}."),),
            blocks=(
                Entries(words(f"Compared with {self.subject}"), ("verdict", "of limit", "tensors"), entries),
                *(each for each in charts if each is not None),
                Prose((meaning,), small=True),
            ),
            data=self._data(),
            annotations=tuple(_annotation(row) for row in self.rows if not row.agrees),
        )

    def _data(self) -> dict[str, Any]:
        return {
            "unstall": __version__,
            "schema": 1,
            "tensors": self.tensors,
            "ways": [
                {
                    "way": row.way,
                    "is": row.kind,
                    "sentence": row.sentence,
                    "most_of_limit": finite(_most(row.found)),
                    "why": row.why,
                    "pattern": _pattern_data(row.pattern),
                    "tensors": len(row.found.pairs) if row.found else 0,
                    "first": _first_data(row.found.first) if row.found else None,
                    "added": [
                        {"name": each.name, **place_data(each.place)} for each in (row.found.added if row.found else ())
                    ],
                    "run": run_data(row.found),
                    "race": _race_data(row.race) if row.race else None,
                }
                for row in self.rows
            ],
        }


def _annotation(row: Row) -> Annotation:
    place = row.found.first.seen.place if row.found is not None and row.found.first is not None else NOWHERE
    at = (place.file, place.line) if place.file else (None, None)
    return Annotation("error", f"Numbers: {row.way} is {row.kind}", row.sentence, *at)


def _first_data(first: Pair | None) -> dict[str, Any] | None:
    if first is None:
        return None
    seen = first.seen
    return {
        "kind": seen.kind,
        "name": seen.name,
        **place_data(seen.place),
        "shape": list(seen.shape),
        "difference": finite(first.difference),
        "rounding": finite(first.rounding),
        "size": finite(first.size),
    }


def _race_data(race: Race) -> dict[str, Any]:
    sides = {"earlier": race.earlier, "later": race.later}
    return {"kind": race.kind, "fix": race.fix} | {
        name: {"name": side.operator, "stream": side.stream, **place_data(_place_of(side))}
        for name, side in sides.items()
    }


def _pattern_data(pattern: Pattern | None) -> dict[str, Any] | None:
    if pattern is None:
        return None
    return {"kind": pattern.kind, "sentence": pattern.sentence, "left": pattern.left, **pattern.data}


def _place_of(side: RaceSide) -> Place:
    at = side.where
    return Place(at.file, at.line, at.function, side.backward) if at else NOWHERE


def _entry(row: Row, *, scrub_paths: bool) -> Entry:
    details = [("so", words(row.sentence))]
    if row.why:
        details.append(("why", words(row.why)))
    if row.pattern is not None and row.pattern.kind != row.kind:  # the sentence says it
        details.append(("pattern", words(row.pattern.sentence)))
    found = row.found
    if found is None:
        return Entry(words(row.way), (row.kind, "", ""), tuple(details))
    if row.kind == "unknown":
        return Entry(
            words(row.way), (row.kind, "", f"{len(found.pairs):,}"), (*details, *_apart(found, scrub_paths=scrub_paths))
        )
    most = _most(found)
    if found.first is None and most:
        largest = max((pair for pair in found.pairs if pair.is_end), key=lambda pair: pair.share)
        details.append(("most", words(_differs(largest, found.limit))))
    if found.first is not None:
        details += _where(found, scrub_paths=scrub_paths)
    if row.race is not None:
        for label, side in (("earlier", row.race.earlier), ("later", row.race.later)):
            details.append((label, words(Span(side.operator, "name"), f" on {side.stream or 'the CPU'}")))
            details += _at("at", _place_of(side), scrub_paths=scrub_paths)
    return Entry(words(row.way), (row.kind, _of_limit(most), f"{len(found.pairs):,}"), tuple(details))


def _of_limit(most: float) -> str:
    if most > _FAR:
        return "∞" if math.isinf(most) else f">{_FAR:,}"
    return f"{most:,.0f}" if most >= _MANY else f"{most:.2g}"


def _apart(found: Compared, *, scrub_paths: bool) -> list[tuple[str, Words]]:
    if found.first is None:
        return [("first", words("They call other operators."))]
    difference = words(Span(name_of(found.first.seen), "name"), f": {_sizes(found.first)}")
    return [("first", difference), *_at("at", found.first.seen.place, scrub_paths=scrub_paths)]


def _where(found: Compared, *, scrub_paths: bool) -> list[tuple[str, Words]]:
    first = found.first
    assert first is not None
    details = [("first", words(_differs(first, found.limit)))]
    details += _at("at", first.seen.place, scrub_paths=scrub_paths)
    if first.after is not None and first.after.place != first.seen.place:
        details += _at("there", first.after.place, scrub_paths=scrub_paths)
    for each in found.added[:_MOST_ADDED]:
        details.append(("before", words(Span(each.name, "name"), " is called before it, in this way only")))
        details += _at("at", each.place, scrub_paths=scrub_paths)
    return details


def _differs(pair: Pair, limit: float) -> Words:
    """Returns a phrase that says how much a tensor differs, how large its elements are, and how large the effect
    of rounding can be.
    """
    if math.isinf(pair.difference):
        return words(Span(name_of(pair.seen), "name"), " cannot be compared, or is not finite in one of the ways")
    up_to = f"Up to {_figure(limit * pair.rounding)} is rounding"
    return words(Span(name_of(pair.seen), "name"), f": {_sizes(pair)}. {up_to}")


def _sizes(pair: Pair) -> str:
    """Returns a phrase that says how much elements of similar size differ.

    If `pair.count` is 0, the difference is that of the sum of all elements, each with a random
    sign. The phrase then says so.
    """
    size, difference = _figure(pair.size), _figure(pair.difference)
    if not pair.count:
        return f"the sum of all, with random signs, differs by {difference}; the root sum of squares is {size}"
    count = f"{pair.count:,} of {len(pair.seen.values):,} elements"
    return f"elements of size {size} differ by {difference} (root mean squares over {count})"


def _at(label: str, place: Place, *, scrub_paths: bool) -> list[tuple[str, Words]]:
    line = line_of(place, scrub_paths=scrub_paths)
    if not line:
        return []
    of = ", backward" if place.backward else ""
    return [(label, words(Span(line, "place"), f"{of}  {place.source}"))]


def _figure(value: float) -> str:
    return f"{value:.3g}"


def _most(found: Compared | None) -> float:
    return max((pair.share / found.limit for pair in found.pairs if pair.is_end), default=0.0) if found else 0.0
