"""Formats times, shares and names for the texts of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from unstall.figures import duration

_MOST_NAMES = 3


def precise(ns: float) -> str:
    """Formats a duration like `figures.duration`, but with three digits below 100 ns: "1.84 ns"."""
    return f"{ns:#.3g} ns" if 0 < ns < 99.95 else duration(round(ns))


def percent(share: float) -> str:
    """Formats a share with two digits, without a power of ten: "0.24 %", "950 %", "<0.001 %"."""
    value = 100 * share
    if 0 < value < 0.001:
        return "<0.001 %"
    return f"{value:.2g} %" if value < 99.5 else f"{float(f'{value:.2g}'):,.0f} %"


def names_of(names: Iterable[str]) -> str:
    """Joins the first three names: "a, b and c", "a, b, c and 2 more"."""
    names = list(names)
    more = len(names) - _MOST_NAMES
    if more > 0:
        return f"{', '.join(names[:_MOST_NAMES])} and {more} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def capital(text: str) -> str:
    """Capitalises the first letter."""
    return text[:1].upper() + text[1:]
