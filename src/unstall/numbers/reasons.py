"""Sentences that say why rounding explains the difference between two runs: which operators round,
how many terms these operators add up, and how large the errors in the results become.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unstall.rounding.facts import PRODUCTS
from unstall.rounding.judge import Compared, Pair
from unstall.rounding.samples import Ran, Seen

_MOST = 3  # kinds of sums that are named


def named(seen: Seen) -> str:
    """Returns the name of an operator and its source line: "mm at train.py:12, backward"."""
    place = seen.place
    if not place.file:
        return seen.name
    return f"{seen.name} at {Path(place.file).name}:{place.line}{', backward' if place.backward else ''}"


def same_ends(found: Compared) -> str:
    """Returns a sentence about two runs whose results are equal, although operators on the way gave
    different results.
    """
    on_the_way = found.other_bits
    if on_the_way is None:
        return "Results have the same bits. Other operators are called on the way."
    return f"Results have the same bits. On the way, {named(on_the_way.seen)} gives others."


def first_bits(found: Compared, operators: Sequence[Seen]) -> str:
    """Returns a sentence about the first operator whose bits differ between two runs. Call it only
    if rounding explains all differences.

    Args:
        found: The comparison of the two runs.
        operators: The operators of the first run.
    """
    matched = {id(pair.before) for pair in found.pairs}
    differ = {id(pair.before) for pair in found.pairs if pair.difference > 0}
    start = next((at for at, each in enumerate(operators) if id(each) in differ), None)
    if start is None:
        return "All that differs is rounding: sums in another order, for example."
    # A sum right before it may be computed by other operators in the other run.
    own = itertools.takewhile(lambda each: id(each) not in matched, reversed(operators[:start]))
    other = next((each for each in own if each.terms > 1), operators[start])
    said = f"All that differs is rounding. The first result with other bits is that of {named(other)}"
    if other.terms <= 1:
        return f"{said}, which is rounded differently."
    what = "products" if other.name in PRODUCTS else "terms"
    return (
        f"{said}. Each of its elements adds up {other.terms:,} {what}. In another order or type, partial sums are "
        f"rounded differently, so such a sum differs by about sqrt({other.terms:,}) = {math.sqrt(other.terms):.2g} "
        "roundoffs."
    )


def composed(found: Compared, operators: Sequence[Seen]) -> str:
    """Returns sentences on how the rounding errors of all sums in a function add up in its results.

    Returns "" if the function has no sums, or if no result differs.

    Args:
        found: The comparison of the two runs.
        operators: The operators of the first run.
    """
    ends = [pair for pair in found.pairs if pair.is_end and pair.difference and pair.typical[2]]
    sums = Counter((each.name, each.terms) for each in operators if each.terms > 1)
    if not ends or not sums:
        return ""
    most = max(ends, key=lambda pair: pair.share)
    passed_on = " Later ones take over the errors of earlier ones." if sums.total() > 1 else ""
    return f"It calls {_kinds(sums)}.{passed_on} {_sizes(most, found.limit)} So it is no bug."


def _kinds(sums: Counter[tuple[str, int]]) -> str:
    """Returns a phrase on operators with sums, the longest sums first: "5 x mm with sums of 5,000 terms"."""
    longest = sorted(sums.items(), key=lambda each: -each[0][1])
    said = [f"{count} x {name} with sums of {terms:,} terms" for (name, terms), count in longest[:_MOST]]
    rest = sum(count for _, count in longest[_MOST:])
    return ", ".join(said) + (f", and {rest:,} with shorter sums" if rest else "")


def _sizes(end: Pair, limit: float) -> str:
    seen = end.seen
    name = f"{seen.kind} {seen.name}" if seen.kind != "after" else f"{seen.name} after the run"
    difference, rounding, size = end.typical
    return (
        f"The elements of {name} are of size {size:.2g} (root mean square). Rounding can change them by up to "
        f"{limit * rounding / size:.1e} of their size; they differ by {difference / size:.1e} of it."
    )


def about_cut(before: Ran, after: Ran) -> str:
    """Returns a sentence on how many operators were compared, if recording stopped before the end
    of a run. Returns "" if both runs were recorded to their ends.
    """
    if before.complete and after.complete:
        return ""
    count = min(len(before.operators), len(after.operators))
    return f" That is of the first {count:,} operators: a run was not recorded to its end."
