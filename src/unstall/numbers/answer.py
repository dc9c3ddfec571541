"""What `compare_numbers` returns."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from unstall._version import __version__
from unstall.document.document import Document, Entries, Entry, Prose, Span, Words, words
from unstall.document.shown import Shown
from unstall.lines.places import Shortened
from unstall.numbers.patterns import Pattern
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.operators import Place

_FINE = ("equal", "rounding", "nondeterministic", "batch")
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # of the picture, in characters
_MANY = 10  # from here on, figures are shown without decimals
_DECADES = 4  # that the picture shows, up to the limit
_MOST_ADDED = 3  # operators that are shown


@dataclass(frozen=True, slots=True)
class Row:
    """A way, compared with the function as it is.

    Attributes:
        way: Its name.
        found: What was compared. None if it could not run.
        kind: "equal" (the same bits), "rounding", "nondeterministic" (rounding that varies from run to run), "batch"
            (rounding that depends on the size of the batch), "failed", or of what kind the difference is: "random",
            "state", "type", "shape", "TF32", "factor", "different".
        sentence: What that means.
        why: More about it, if there is more to say.
        pattern: How elements differ, if that is known.
    """

    way: str
    found: Compared | None
    kind: str
    sentence: str
    why: str = ""
    pattern: Pattern | None = None

    @property
    def agrees(self) -> bool:
        """Whether rounding explains all differences."""
        return self.kind in _FINE


@dataclass(frozen=True, slots=True, repr=False)
class Numbers(Shown):
    """A row for each way. `tensors`: how many tensors were seen in the function as it is."""

    rows: tuple[Row, ...]
    tensors: int

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, way: str) -> Row:
        """Returns the row of a way. Raises KeyError if there is none."""
        for row in self.rows:
            if row.way == way:
                return row
        raise KeyError(way)

    @property
    def agrees(self) -> bool:
        """Whether rounding explains all differences of all ways."""
        return all(row.agrees for row in self.rows)

    def document(self, *, scrub_paths: bool = False) -> Document:
        """Returns the verdicts, and where each way parts first."""
        entries = tuple(_entry(row, scrub_paths=scrub_paths) for row in self.rows)
        meaning = (
            words(
                "of limit: the largest difference of a result, a gradient, or an argument after the run, divided by "
                "the largest difference that is still rounding (99.9 % confidence for each way)"
            ),
            words(f"run: the same figure for each tensor in order, on a logarithmic scale from 10⁻{_DECADES} to 1"),
        )
        return Document(
            title="Numbers",
            about=(words(f"{self.tensors:,} tensors were compared in each way."),),
            blocks=(
                Entries(words("Compared with the function as it is"), ("verdict", "of limit", "tensors"), entries),
                Prose(meaning, small=True),
            ),
            data=self._data(),
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
                    "why": row.why,
                    "pattern": _pattern_data(row.pattern),
                    "most_of_limit": _json(_most(row.found)),
                    "tensors": len(row.found.pairs) if row.found else 0,
                    "first": _first_data(row.found.first) if row.found else None,
                    "added": [
                        {"name": each.name, **_place_data(each.place)}
                        for each in (row.found.added if row.found else ())
                    ],
                }
                for row in self.rows
            ],
        }


def _first_data(first: Pair | None) -> dict[str, Any] | None:
    if first is None:
        return None
    seen = first.seen
    return {
        "kind": seen.kind,
        "name": seen.name,
        **_place_data(seen.place),
        "shape": list(seen.shape),
        "difference": _json(first.difference),
        "rounding": _json(first.rounding),
        "size": _json(first.size),
    }


def _pattern_data(pattern: Pattern | None) -> dict[str, Any] | None:
    if pattern is None:
        return None
    return {"kind": pattern.kind, "sentence": pattern.sentence, "left": pattern.left, **pattern.data}


def _place_data(place: Place) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "function": place.function, "backward": place.backward}


def _json(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def _entry(row: Row, *, scrub_paths: bool) -> Entry:
    details = [("so", words(row.sentence))]
    if row.why:
        details.append(("why", words(row.why)))
    if row.pattern is not None and row.pattern.kind != row.kind:  # the sentence says it
        details.append(("pattern", words(row.pattern.sentence)))
    found = row.found
    if found is None:
        return Entry(words(row.way), (row.kind, "", ""), tuple(details))
    most = _most(found)
    if found.first is None and most:
        largest = max((pair for pair in found.pairs if pair.is_end), key=lambda pair: pair.share)
        details.append(("most", words(_differs(largest, found.limit))))
    if found.first is not None:
        details += _where(found, scrub_paths=scrub_paths)
    if picture := _picture(found):
        details.append(("run", words(Span(picture, "dim"))))
    of_limit = "∞" if math.isinf(most) else f"{most:,.0f}" if most >= _MANY else f"{most:.2g}"
    return Entry(words(row.way), (row.kind, of_limit, f"{len(found.pairs):,}"), tuple(details))


def _where(found: Compared, *, scrub_paths: bool) -> list[tuple[str, Words]]:
    first = found.first
    assert first is not None
    details = [("first", words(_differs(first, found.limit)))]
    details += _at("at", first.seen.place, scrub_paths=scrub_paths)
    for each in found.added[:_MOST_ADDED]:
        details.append(("before", words(Span(each.name, "name"), " is called before it, in this way only")))
        details += _at("at", each.place, scrub_paths=scrub_paths)
    return details


def _differs(pair: Pair, limit: float) -> Words:
    """Says by how much a tensor differs, of which size its elements are, and how much of that is rounding."""
    seen = pair.seen
    what = seen.name if seen.kind == "operator" else f"{seen.kind} {seen.name}"
    if math.isinf(pair.difference):
        return words(Span(what, "name"), " cannot be compared, or is not finite in one of the ways")
    sizes = f"has elements of {_figure(pair.size)} that differ by {_figure(pair.difference)} (root mean squares)"
    return words(Span(what, "name"), f" {sizes}. Up to {_figure(limit * pair.rounding)} is rounding")


def _at(label: str, place: Place, *, scrub_paths: bool) -> list[tuple[str, Words]]:
    if not place.file:
        return []
    file = Path(place.file).name if scrub_paths else Shortened(str(Path.cwd()))[place.file]
    text = linecache.getline(place.file, place.line).strip()
    of = ", backward" if place.backward else ""
    return [(label, words(Span(f"{file}:{place.line}", "place"), f"{of}  {text}"))]


def _figure(value: float) -> str:
    return f"{value:.3g}"


def _most(found: Compared | None) -> float:
    return max((pair.share / found.limit for pair in found.pairs if pair.is_end), default=0.0) if found else 0.0


def _picture(found: Compared) -> str:
    """Returns a bar for each stretch of the run: the largest difference in it, on a scale of its limit."""
    of_limit = [pair.share / found.limit for pair in found.pairs if pair.seen.kind != "given"]
    count = min(_WIDTH, len(of_limit))
    edges = [len(of_limit) * at // count for at in range(count + 1)] if count else []
    return "".join(_bar(max(of_limit[one:other])) for one, other in pairwise(edges))


def _bar(share: float) -> str:
    if share <= 0:
        return " "
    level = 1 + math.log10(min(share, 1.0)) / _DECADES
    return _BARS[max(0, min(len(_BARS) - 1, int(level * (len(_BARS) - 1))))]
