"""What was measured → a GPU's file: tables without what neighbours tell, names of kernels once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from unstall.virtual.costs.families import FAMILIES, describe
from unstall.virtual.costs.roofline import Roofline
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, MeasuredCall, as_rows

Observed = tuple[Signature, list[tuple[str, int]], list[int], list[int]]
"""A call: its kernels with their ns, the bytes that it took besides its results, and of these what it kept."""
_BYTES_OFF = 64 << 10
"""Of temporary memory that neighbours may tell wrongly."""


class Tables:
    """Measured calls by family and variant. Of calls with the same figures the first counts."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._calls: dict[tuple[str, str], dict[tuple[int, ...], MeasuredCall]] = {}

    def add(self, observed: Observed) -> None:
        """A call without kernels is left out: it worked on nothing."""
        signature, kernels, taken, kept = observed
        described = describe(signature)
        if described is None or not kernels:
            return
        family, shape = described
        held = list(kept)
        temporaries = []
        for size in taken:
            if size in held:
                held.remove(size)
            else:
                temporaries.append(size)
        numbers = tuple(self.names.setdefault(name, len(self.names)) for name, _ in kernels)
        call = MeasuredCall(shape.dims, numbers, tuple(ns for _, ns in kernels), tuple(temporaries))
        self._calls.setdefault((family.name, shape.variants[0]), {}).setdefault(shape.dims, call)

    def thinned(self, measured_on: Roofline, within: float) -> dict[str, dict[str, list[MeasuredCall]]]:
        """By family and variant, without the calls that those left tell within `within` of their time, with the same
        kernels.
        """
        found: dict[str, dict[str, list[MeasuredCall]]] = {}
        for (family, variant), calls in sorted(self._calls.items()):
            ordered = [calls[dims] for dims in sorted(calls)]
            table = CostTable(FAMILIES[family], variant, ordered, measured_on)
            kept = _needed(ordered, table, measured_on, variant.partition(" ")[0], within)
            found.setdefault(family, {})[variant] = kept
        return found


def _needed(
    calls: list[MeasuredCall], table: CostTable, roofline: Roofline, dtype: str, within: float
) -> list[MeasuredCall]:
    """Leaves calls out in a mixed order, as long as four times as many stay as there are axes."""
    left_out = np.zeros(len(calls), bool)
    least = 4 * len(calls[0].dims)
    for index in np.random.default_rng(0).permutation(len(calls)):
        if len(calls) - int(left_out.sum()) <= least:
            break
        call = calls[index]
        left_out[index] = True
        answer = table.ask(call.dims, roofline, dtype, left_out)
        told = table.temporaries(call.dims, answer)
        off = sum(abs(one - other) for one, other in zip(told, call.temporaries, strict=False))
        same = answer.nearest.names == call.names and len(told) == len(call.temporaries)
        if not same or off > _BYTES_OFF or abs(answer.total_ns / max(call.total_ns, 1) - 1) > within:
            left_out[index] = False
    return [call for call, out in zip(calls, left_out, strict=True) if not out]


def rows_of(
    tables: dict[str, dict[str, list[MeasuredCall]]], names: dict[str, int]
) -> tuple[list[str], list[list[int]], dict[str, Any]]:
    """(names of kernels, sequences of them, tables) as a file has them: only names that are used, the most used
    first.
    """
    calls = [call for variants in tables.values() for some in variants.values() for call in some]
    uses = Counter(name for call in calls for name in call.names)
    spelled = {number: name for name, number in names.items()}
    order = sorted(uses, key=lambda number: (-uses[number], spelled[number]))
    place = {number: position for position, number in enumerate(order)}
    often = Counter(tuple(place[name] for name in call.names) for call in calls)
    sequences = {kernels: number for number, kernels in enumerate(sorted(often, key=lambda one: (-often[one], one)))}
    rows = {
        family: {
            variant: as_rows([_renamed(call, place) for call in some], sequences) for variant, some in variants.items()
        }
        for family, variants in tables.items()
    }
    return [spelled[number] for number in order], [list(kernels) for kernels in sequences], rows


def _renamed(call: MeasuredCall, place: dict[int, int]) -> MeasuredCall:
    return MeasuredCall(call.dims, tuple(place[name] for name in call.names), call.ns, call.temporaries)
