"""Assembles the file of a measured GPU: its facts and tables of calls. Leaves out calls that similar calls predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from unstall.virtual.costs.families import FAMILIES, describe
from unstall.virtual.costs.gpu_file import DeviceEntry, GpuFile, Peaks, TableRow
from unstall.virtual.costs.model import HostCosts, Limits, Startup
from unstall.virtual.costs.operator_calls import OperatorCall, own_ns
from unstall.virtual.costs.origins import PARTS, Origin, Part
from unstall.virtual.costs.roofline import Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, MeasuredCall, as_rows

Observed = tuple[Signature, list[tuple[str, int]], list[int], list[int]]
"""A measured call: (signature, kernels as (name, ns), bytes of each allocation that is not a result, bytes of each of
these allocations that the call did not free).
"""
_BYTES_OFF = 64 << 10
"""The largest allowed error in bytes if similar calls predict the temporary memory of a call."""
_FOUR_MIB = 4 << 20


class Tables:
    """Measured calls, by family and variant (see `CallShape`). If several calls have the same dims, stores only the
    first call.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._calls: dict[tuple[str, str], dict[tuple[int, ...], MeasuredCall]] = {}

    def add(self, observed: Observed) -> None:
        """Adds a measured call. Ignores a call that no family describes. Also ignores a call without elements, because
        it launched no kernel.
        """
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
        """Returns the calls to keep, by family and variant. A call is left out if the kept calls predict its
        kernels and, up to the relative error `within`, its time.
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
    """Returns the calls to keep in a table. Tries to leave out each call, in a random (seeded) order. Keeps at least
    four calls for each dimension of `dims`.
    """
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
    """Converts tables of calls into the form of a GPU file. Leaves out unused kernel names.

    Returns:
        (kernel names, sequences, tables). A sequence lists the kernels of a call as indices into the kernel names.
        Calls in the tables refer to sequences by index. The most used names and sequences come first.
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
    """Returns the peak rates. FLOP rates come from matrix products. Byte rates come from device-to-device copies.

    The rate of the device memory comes from the largest copy. The rate of the L2 cache comes from a 4 MiB copy: the
    time of the smallest copy is subtracted from the time of the 4 MiB copy.
    """
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


def assemble(
    facts: Mapping[str, Any],
    tables: Tables,
    hosts: Mapping[str, OperatorCall],
    startup: Startup | None,
    measured_on: str,
    within: float,
) -> GpuFile:
    """Assembles the GPU file of a measured GPU.

    Args:
        facts: The figures of `measure_facts`.
        tables: The measured calls.
        hosts: The calls of operators, by name and overload.
        startup: The costs of first uses, or None if they were not measured.
        measured_on: The GPU and its software.
        within: A relative error. A call is left out if similar calls predict its kernels and, up to this error, its
            time.
    """
    device = {name: value for name, value in facts["device"].items() if name in DeviceEntry.__struct_fields__}
    peaks = peaks_of(facts)
    kept = tables.thinned(roofline_of(peaks, device["l2_bytes"], device["multiprocessors"]), within)
    kernels, sequences, rows = rows_of(kept, tables.names)
    measured = {
        "queue_capacity": facts["queue"]["capacity"],
        "sleep_cycles_per_us": facts["queue"]["sleep_cycles_per_us"],
        "gap": facts["latencies"]["gap"],
        "event_latency": facts["latencies"]["event"],
        "wake_latency": facts["latencies"]["wake"],
        "graph_gap": facts["graph"]["gap_of_100"],
    }
    limits = {name: value for name, value in measured.items() if value}
    return GpuFile(
        schema="unstall.gpu/2",
        source="measured",
        note=f"Measured on {measured_on}.",
        known_error="not compared with a real run",
        device=DeviceEntry(**device),
        peaks=peaks,
        copies=[(at, held, size, ns) for at, held, size, ns, _ in facts["copies"]],
        memsets=[(size, ns) for size, ns in facts["memset"]],
        limits=limits,
        workspaces=workspaces_of(device["capability"]),
        startup=startup,
        operators_host_ns=own_ns(
            hosts,
            HostCosts(),
            facts["calls"]["bound_mul_in_place"] - facts["calls"]["mul_in_place"],
            Limits(**limits),
        ),
        kernels=kernels,
        sequences=sequences,
        tables=rows,
        origins=_origins(measured_on, startup is not None, bool(hosts)),
    )


def _origins(measured_on: str, first_uses: bool, operators: bool) -> dict[Part, Origin]:
    """Returns the origin of each part of a GPU file that `unstall calibrate` writes. `unstall calibrate` measures only
    some of the host's costs.
    """
    others: dict[Part, Origin] = {
        "links": Origin("assumed", "PCIe 3.0 with 16 lanes, and the model by which NCCL tunes itself"),
        "workspaces": Origin("published", "torch's source, by compute capability"),
        "host calls": Origin("measured", f"{measured_on}: operators. Launches, allocations and events: an H200's host"),
        "CPU operators": Origin("assumed", "rates of a server's CPU (AMD EPYC), 16 cores"),
    }
    if not operators:
        others["host calls"] = Origin("assumed", "an H200's host; operators could not be measured")
    if not first_uses:
        others["first uses"] = Origin("assumed", "they take no time, as they could not be measured")
    return {part: others.get(part, Origin("measured", measured_on)) for part in PARTS}


def workspaces_of(capability: list[int] | tuple[int, ...]) -> dict[str, int]:
    """Returns the sizes in bytes of the workspaces that torch gives to cuBLAS and cuBLASLt.

    The rules are those of torch's `getChosenWorkspaceSize` and `_getWorkspaceSize`.
    """
    hopper = capability[0] == 9
    return {"cublas": 32 << 20 if hopper else (4096 * 2 + 16 * 8) << 10, "cublaslt": 1 << 20}
