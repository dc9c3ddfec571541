"""Times as benchmarks write them."""

from __future__ import annotations

from unstall.figures import duration


def precise(ns: float) -> str:
    """As `duration`, and with digits where a call takes less than 100 ns: "1.84 ns"."""
    return f"{ns:#.3g} ns" if 0 < ns < 99.95 else duration(round(ns))
