"""Shows how much each tensor of a run differs from the same tensor of another run, as a chart and
as data. Tensors are in the order of the run.
"""

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
    """Returns the chart of a comparison of two runs: how much each tensor differs. Arguments that
    are equal are left out.

    Returns None if no operators were compared, or if all tensors are equal bit for bit.

    Args:
        way: The name of the way in which the second run ran the function.
        found: The comparison of the two runs.
        scrub_paths: Whether to remove folders of this machine from paths.
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
    """Returns what the chart of a comparison shows, as one dict for each tensor. Returns [] if
    `found` is None.

    If there are more than 2,000 tensors, divides the run into 2,000 stretches. The list then has
    one dict for each stretch: it describes the tensor that differs most in the stretch.
    """
    if found is None:
        return []
    pairs = found.pairs
    return [_data(pairs[at], found.limit) for at in largest([pair.share for pair in pairs], _MOST_DATA)]


def name_of(seen: Seen) -> str:
    """Returns the name that reports give a tensor: the operator that returned the tensor, or the
    kind and name of a tensor that no operator returned.
    """
    return seen.name if seen.kind == "operator" else f"{seen.kind} {seen.name}"


def line_of(place: Place, *, scrub_paths: bool) -> str:
    """Returns the text "FILE:LINE" for a place in the source; "" if the file is not known.
    `scrub_paths` removes folders of this machine from the path.
    """
    if not place.file:
        return ""
    file = Path(place.file).name if scrub_paths else Shortened(str(Path.cwd()))[place.file]
    return f"{file}:{place.line}"


def place_data(place: Place) -> dict[str, Any]:
    """Returns a place in the source as a dict for JSON."""
    return {"file": place.file, "line": place.line, "function": place.function, "backward": place.backward}


def finite(figure: float) -> float | None:
    """Returns `figure`, or None if it is infinite or NaN, which JSON does not have."""
    return figure if math.isfinite(figure) else None


def _is_argument(pair: Pair) -> bool:
    return pair.seen.kind in ("given", "after")


def _relative(pair: Pair, limit: float) -> tuple[float, float]:
    """Returns `(difference, bound)`: how much a tensor differs between two runs, and the largest
    difference that rounding explains. Both are relative to the size of the tensor's elements.

    If all elements are 0, both are relative to the larger of the two.
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
