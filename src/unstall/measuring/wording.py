"""Formats times, shares and names for the texts of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.figures import duration

_MOST_NAMES = 3


def precise(ns: float) -> str:
    """Returns a duration as text. Below 100 ns, the text has three digits, such as "1.84 ns". From
    100 ns on, the text is the one that `figures.duration` returns.
    """
    return f"{ns:#.3g} ns" if 0 < ns < 99.95 else duration(round(ns))


def percent(share: float) -> str:
    """Returns a fraction as text, with two digits and without a power of ten, such as "0.24 %",
    "950 %" or "<0.001 %".
    """
    value = 100 * share
    if 0 < value < 0.001:
        return "<0.001 %"
    return f"{value:.2g} %" if value < 99.5 else f"{float(f'{value:.2g}'):,.0f} %"


def names_of(names: Iterable[str]) -> str:
    """Joins names to a text such as "a, b and c". Of more than three names, the text has three, and
    the number of the remaining ones: "a, b, c and 2 more".
    """
    names = list(names)
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
