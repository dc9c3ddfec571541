"""Infers how much longer the calls after first calls take, because loading evicted code from the CPU caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unstall.virtual.costs.first_calls import SETTLED, FirstCalls
from unstall.virtual.costs.model import LONG_NS, ColdCode

_LEAST_PROCESSES = 3  # in which an operator loaded kernels, so that its own extra time is known
_BRIEF_NS = tuple(50_000 << power for power in range(8))
_SHARES = tuple(share / 10 for share in range(13))
Floats: TypeAlias = NDArray[np.float64]


def fit_cold_code(processes: Sequence[FirstCalls]) -> ColdCode:
    """Returns the `ColdCode` whose predictions of second calls have the smallest sum of relative errors."""
    calls = [calls for each in processes for calls in each.calls if len(calls.ns) > SETTLED]
    if not calls:
        return ColdCode()
    loading, warm = (np.array(each, float) for each in zip(*((at.loading_ns, at.warm_ns) for at in calls), strict=True))
    second, third = (np.array([at.ns[nth] for at in calls], float) - warm for nth in (1, 2))
    rows: dict[str, list[int]] = {}
    for row, at in enumerate(calls):
        rows.setdefault(at.name, []).append(row)
    again = float(np.clip(_weighted_median(third / np.maximum(second, 1), np.maximum(second, 1)), 0, 1))
    found: list[tuple[float, ColdCode]] = []
    for brief_ns in _BRIEF_NS:
        evicted = np.log1p(loading / brief_ns)
        own = {
            name: max(_weighted_median(second[mine] / np.maximum(evicted[mine], 1e-9), evicted[mine]), 0.0)
            for name, mine in rows.items()
            if (loading[mine] > brief_ns).sum() >= _LEAST_PROCESSES
        }
        ns, share = _usual(second, warm, evicted)
        cold = ColdCode(brief_ns, round(ns), share, round(again, 3), {name: round(each) for name, each in own.items()})
        predicted = np.array([cold.extra_ns(at.name, at.warm_ns, at.loading_ns) for at in calls])
        found.append((float((np.abs(predicted - second) / (warm + np.maximum(second, 0))).sum()), cold))
    return min(found, key=lambda each: each[0])[1]


def _usual(second: Floats, warm: Floats, evicted: Floats) -> tuple[float, float]:
    """Returns the (ns, share) of `ColdCode` with the smallest sum of absolute errors, for operators not measured."""
    found = []
    weight = np.maximum(evicted, 1e-9)
    for share in _SHARES:
        rest = share * np.minimum(warm, LONG_NS)
        ns = max(_weighted_median(second / weight - rest, weight), 0.0)
        found.append((float(np.abs(second - evicted * (ns + rest)).sum()), ns, share))
    _, ns, share = min(found)
    return ns, share


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
