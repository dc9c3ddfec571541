"""A measured GPU → its file: its facts, and tables of its calls without those that their neighbours predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from unstall.virtual.costs.families import FAMILIES, describe
from unstall.virtual.costs.gpu_file import DeviceEntry, GpuFile, Peaks, TableRow
from unstall.virtual.costs.roofline import Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, MeasuredCall, as_rows

Observed = tuple[Signature, list[tuple[str, int]], list[int], list[int]]
"""A call: its kernels with their ns, the bytes that it allocated besides its results, and those of them that it kept.
"""
_BYTES_OFF = 64 << 10
"""The error that is allowed for temporary memory predicted by neighbours."""
_FOUR_MIB = 4 << 20
_MOST_NS = 60_000
"""Longer times come from the number of tensors, or from a plan that is made once."""
_BINDING_NS = 300
"""Of a method that torch binds by hand, as `torch.cuda._sleep` is: its call, without the launch in it."""


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
        """By family and variant, without calls whose kernels and time, within `within`, the remaining ones predict."""
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
        found = table.temporaries(call.dims, answer)
        off = sum(abs(one - other) for one, other in zip(found, call.temporaries, strict=False))
        same = answer.nearest.names == call.names and len(found) == len(call.temporaries)
        if not same or off > _BYTES_OFF or abs(answer.total_ns / max(call.total_ns, 1) - 1) > within:
            left_out[index] = False
    return [call for call, out in zip(calls, left_out, strict=True) if not out]


def rows_of(
    tables: dict[str, dict[str, list[MeasuredCall]]], names: dict[str, int]
) -> tuple[list[str], list[list[int]], dict[str, dict[str, list[TableRow]]]]:
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


def peaks_of(facts: Mapping[str, Any]) -> Peaks:
    """Rates from products and copies within the device: a small one's, less an empty one's time, is the L2 cache's."""
    rates = facts["peaks"]
    within = {size: ns for at, _, size, ns, _ in facts["copies"] if at == "DtoD"}
    large = max(within)
    cached = 2 * _FOUR_MIB / max(within[_FOUR_MIB] - within[min(within)], 1)
    return Peaks(
        float32=rates["float32"],
        half=rates["bfloat16"],
        float64=rates["float64"],
        bytes=round(2 * large / within[large], 1),
        l2_bytes=round(cached, 1),
        floor_ns=facts["latencies"]["tiny_kernel"],
    )


def assemble(facts: Mapping[str, Any], tables: Tables, hosts: Mapping[str, int], note: str, within: float) -> GpuFile:
    """The file. `hosts`: by operator, ns of one call from Python. `within`: a call is left out if its neighbours
    predict it this exactly.
    """
    device = {name: value for name, value in facts["device"].items() if name in DeviceEntry.__struct_fields__}
    peaks = peaks_of(facts)
    kept = tables.thinned(roofline_of(peaks, device["l2_bytes"]), within)
    kernels, sequences, rows = rows_of(kept, tables.names)
    limits = {
        "queue_capacity": facts["queue"]["capacity"],
        "sleep_cycles_per_us": facts["queue"]["sleep_cycles_per_us"],
        "gap": facts["latencies"]["gap"],
        "event_latency": facts["latencies"]["event"],
        "wake_latency": facts["latencies"]["wake"],
        "graph_gap": facts["graph"]["gap_of_100"],
    }
    return GpuFile(
        schema="unstall.gpu/1",
        source="measured",
        note=note,
        known_error="not compared with a real run",
        device=DeviceEntry(**device),
        peaks=peaks,
        copies=[(at, held, size, ns) for at, held, size, ns, _ in facts["copies"]],
        memsets=[(size, ns) for size, ns in facts["memset"]],
        limits={name: value for name, value in limits.items() if value},
        workspaces=workspaces_of(device["capability"]),
        operators_host_ns=_own_ns(hosts, facts),
        kernels=kernels,
        sequences=sequences,
        tables=rows,
    )


def workspaces_of(capability: list[int] | tuple[int, ...]) -> dict[str, int]:
    """The workspaces that torch gives cuBLAS and cuBLASLt: `getChosenWorkspaceSize` and `_getWorkspaceSize`."""
    hopper = capability[0] == 9
    return {"cublas": 32 << 20 if hopper else (4096 * 2 + 16 * 8) << 10, "cublaslt": 1 << 20}


def _own_ns(hosts: Mapping[str, int], facts: Mapping[str, Any]) -> dict[str, int]:
    """By operator: the ns of its call beyond one launch and an operator that does nothing."""
    launch = facts["calls"]["sleep_kernel"] - _BINDING_NS
    bare = facts["calls"]["bound_operator"]
    own: dict[str, int] = {}
    for operator, ns in sorted(hosts.items()):
        name = operator.partition(".")[0]
        if ns:
            own[name] = max(0, min(ns - bare - launch, own.get(name, ns), _MOST_NS))
    return own
