"""Figures in the sentences of findings: plain text, for any renderer."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """ "1 wait", "2,388 launches"."""
    plural = "es" if noun.endswith(("ch", "sh", "s")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def duration(ns: float) -> str:
    """ "7.4 µs", "58.7 ms", "1.21 s"."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}" if abs(ns) < 999.5 * size else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def percent(part: float, whole: float) -> str:
    """ "53 %", "0.9 %", "< 0.1 %"."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "< 0.1 %"
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"
