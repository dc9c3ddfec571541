"""Shows how much each tensor differs between two runs, as a chart and as data. Tensors are in the order of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from unstall.document.chart import largest
from unstall.document.document import Chart, Span, words
from unstall.lines.places import Shortened
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.operators import Place
from unstall.rounding.samples import Seen

_MOST_DATA = 2000  # tensors in the JSON form of a way


def chart(way: str, found: Compared, *, scrub_paths: bool = False) -> Chart | None:
    """Returns the chart for one way of running a function. The chart omits arguments that are equal.

    Returns None if no operators were compared, or if all tensors are equal bit for bit.
    """
    if found.equal or not any(pair.seen.kind == "operator" for pair in found.pairs):
        return None
    pairs = [pair for pair in found.pairs if pair.difference or not _is_argument(pair)]
    relative = [_relative(pair, found.limit) for pair in pairs]
    first = next((at for at, pair in enumerate(pairs) if pair is found.first), None)
    mark = None
    if first is not None:
        seen = pairs[first].seen
        at = line_of(seen.place, scrub_paths=scrub_paths)
        mark = first, words("first: ", Span(name_of(seen), "name"), at and "  ", Span(at, "place"))
    return Chart(
        title=words(f"{way}: how much each tensor differs, relative to its elements"),
        values=[value for value, _ in relative],
        bounds=[bound for _, bound in relative],
        within="within rounding",
        beyond="more than rounding" if found.first is not None else "more, but the results agree",
        bound="limit of rounding",
        most=1.0,
        sections=tuple(_sections(pairs)),
        mark=mark,
    )


def run_data(found: Compared | None) -> list[dict[str, Any]]:
    """Returns the data of the chart, one row for each tensor.

    If there are more than 2,000 tensors, divides the run into 2,000 stretches. The data then has one row for each
    stretch. The row describes the tensor that differs most in the stretch.
    """
    if found is None:
        return []
    pairs = found.pairs
    return [_data(pairs[at], found.limit) for at in largest([pair.share for pair in pairs], _MOST_DATA)]


def name_of(seen: Seen) -> str:
    """Returns a tensor's name in reports: the operator that returned the tensor, or the kind and name of a tensor that
    no operator returned.
    """
    return seen.name if seen.kind == "operator" else f"{seen.kind} {seen.name}"


def line_of(place: Place, *, scrub_paths: bool) -> str:
    """Returns FILE:LINE of a place; "" if the file is not known."""
    if not place.file:
        return ""
    file = Path(place.file).name if scrub_paths else Shortened(str(Path.cwd()))[place.file]
    return f"{file}:{place.line}"


def place_data(place: Place) -> dict[str, Any]:
    """Returns the JSON form of a place."""
    return {"file": place.file, "line": place.line, "function": place.function, "backward": place.backward}


def finite(figure: float) -> float | None:
    """Returns a number for JSON. Returns None if the number is not finite."""
    return figure if math.isfinite(figure) else None


def _is_argument(pair: Pair) -> bool:
    return pair.seen.kind in ("given", "after")


def _relative(pair: Pair, limit: float) -> tuple[float, float]:
    """Returns (difference, bound) of a tensor, both relative to the size of the tensor's elements.

    If all elements are 0, both are relative to the larger of the difference and the bound.
    """
    bound = limit * pair.rounding
    size = pair.size or max(pair.difference, bound)
    if not 0 < size < math.inf:
        return pair.difference, bound
    return pair.difference / size, bound / size


def _sections(pairs: Sequence[Pair]) -> Iterator[tuple[int, str]]:
    for name, group in groupby(range(len(pairs)), lambda at: _section(pairs[at].seen)):
        yield next(group), name


def _section(seen: Seen) -> str:
    if seen.kind == "operator":
        return "backward" if seen.place.backward else "forward"
    return "arguments" if seen.kind == "given" else "results"


def _data(pair: Pair, limit: float) -> dict[str, Any]:
    seen, (difference, bound) = pair.seen, _relative(pair, limit)
    return {
        "kind": seen.kind,
        "name": seen.name,
        **place_data(seen.place),
        "relative_difference": finite(difference),
        "bound": finite(bound),
    }
