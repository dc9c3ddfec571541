"""Makes the file of a measured GPU, from facts about it and from measured calls. Leaves out calls
that similar calls predict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw

from unstall.virtual.costs.convolution import by_gradient, without_bias
from unstall.virtual.costs.families import FAMILIES, CallShape, Family, describe
from unstall.virtual.costs.families.conv_kernels import halves
from unstall.virtual.costs.families.convolutions import adds_bias, has_parts
from unstall.virtual.costs.families.family import Measured
from unstall.virtual.costs.gpu_file import DeviceEntry, Gpu, GpuFile, Peaks
from unstall.virtual.costs.launches import MeasuredKernel
from unstall.virtual.costs.model import HostCosts, Limits
from unstall.virtual.costs.occupancy import UNKNOWN, Block, size_of
from unstall.virtual.costs.operator_calls import OperatorCall, own_ns
from unstall.virtual.costs.origins import PARTS, Origin, Part
from unstall.virtual.costs.pieces import pieces
from unstall.virtual.costs.roofline import Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.startup_fit import MeasuredStartup
from unstall.virtual.costs.tables import CostTable, MeasuredCall, as_rows

Observed = tuple[Signature, list[MeasuredKernel], list[int], list[int]]
"""A measured call: `(signature, kernels, taken, kept)`. `taken` are the bytes of each allocation that
is no result. `kept` are the bytes of those of them that the call did not free.
"""
_BYTES_OFF = 64 << 10
"""How many bytes the temporary memory of a call may be off for the call to be left out, if similar calls predict it."""
_FOUR_MIB = 4 << 20
_HOPPER = 9, 0
_BEGINS_ORTHOGONAL = "copy_info_kernel"
"""The first kernel of cuSOLVER's computation of an orthogonal factor."""


class Tables:
    """Measured calls, by family of operators and variant (see `CallShape`). Of several calls of the
    same size, only the first is kept.

    Attributes:
        names: By the name of a kernel, the number that it has in the calls.
        blocks: By the name of a kernel, what a thread block of it uses of a multiprocessor: the largest one, as small
            calls have smaller ones.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.blocks: dict[str, Block] = {}
        self._calls: dict[tuple[str, str], dict[tuple[int, ...], MeasuredCall]] = {}

    def add(self, observed: Observed, repeats: tuple[int, ...] = ()) -> None:
        """Adds a measured call. Does nothing if no family of operators describes it, or if it launched no kernel.

        Args:
            observed: The call.
            repeats: What it takes in loops (see `MeasuredCall`). It is left out if the call is added as several.
        """
        signature, kernels, taken, kept = observed
        described = describe(signature)
        if described is None or not kernels:
            return
        family, shape = described
        if family.name == "convolution":
            backward = "backward" in signature.name
            bare = without_bias(signature)
            if bare is not None and not backward and adds_bias([kernel.name for kernel in kernels]):
                self.add((bare[0], kernels[:-1], taken, kept))
                return
            if backward and has_parts(shape.variants[0]) and len(gradients := by_gradient(signature)) > 1:
                self._add_each(shape, observed, [piece.signature for piece in gradients])
                return
        if parts := _parts(signature, kernels):
            for part in parts:
                self.add(part)
            return
        numbers = tuple(self.names.setdefault(kernel.name, len(self.names)) for kernel in kernels)
        for name, launch in ((kernel.name, kernel.launch) for kernel in kernels if kernel.launch):
            self.blocks[name] = max(self.blocks.get(name, UNKNOWN), launch.block, key=_room)
        times = tuple(kernel.ns for kernel in kernels)
        blocks = _untold_blocks(family, shape, kernels)
        call = MeasuredCall(shape.dims, numbers, times, _temporaries(taken, kept), blocks, repeats)
        self._calls.setdefault((family.name, shape.variants[0]), {}).setdefault(shape.dims, call)

    def _add_each(self, shape: CallShape, observed: Observed, gradients: list[Signature]) -> None:
        """Adds the gradients of a backward as calls of their own, without that of the bias, which is a sum. Does
        nothing if it cannot be told which kernels compute which.

        Args:
            shape: The shape of the backward.
            observed: The backward.
            gradients: The calls that compute one gradient each, in order.
        """
        _, kernels, taken, kept = observed
        measured = Measured(shape.dims, tuple(kernel.name for kernel in kernels), _temporaries(taken, kept))
        for gradient, (_, part, sizes) in zip(gradients, halves(shape.variants[0], measured) or (), strict=False):
            self.add((gradient, kernels[part], list(sizes), []))

    def thinned(self, measured_on: Roofline, within: float) -> dict[str, dict[str, list[MeasuredCall]]]:
        """Returns the calls that belong into the file of the GPU, by family of operators and
        variant. The others are predicted well enough by these.

        Args:
            measured_on: The roofline of the GPU.
            within: The relative error up to which the time of a call may be off for the call to be
                left out. Its kernels must be predicted exactly.
        """
        found: dict[str, dict[str, list[MeasuredCall]]] = {}
        for (family, variant), calls in sorted(self._calls.items()):
            ordered = [calls[dims] for dims in sorted(calls)]
            table = CostTable(FAMILIES[family], variant, ordered, measured_on, list(self.names))
            kept = _needed(ordered, table, measured_on, variant.partition(" ")[0], within)
            found.setdefault(family, {})[variant] = kept
        return found


def _temporaries(taken: Sequence[int], kept: Sequence[int]) -> tuple[int, ...]:
    """Returns the sizes of what a call allocated and did not keep, in bytes."""
    held, found = list(kept), []
    for size in taken:
        if size in held:
            held.remove(size)
        else:
            found.append(size)
    return tuple(found)


def _room(block: Block) -> int:
    return size_of(block, _HOPPER)


def _untold_blocks(family: Family, shape: CallShape, kernels: list[MeasuredKernel]) -> tuple[int, ...]:
    """Returns how many thread blocks each kernel of a call had, 0 for one of which it is unknown. Returns () if the
    family tells those of all of them, or all are unknown."""
    told = [family.blocks(shape.variants[0], shape.dims, each.name) if family.blocks else 0 for each in kernels]
    untold = any(each.launch and not known for each, known in zip(kernels, told, strict=True))
    return tuple(each.launch.blocks if each.launch else 0 for each in kernels) if untold else ()


def _parts(signature: Signature, kernels: list[MeasuredKernel]) -> tuple[Observed, ...]:
    """Returns the two kinds of pieces of a QR decomposition of many matrices, each as a measured call. Returns none
    for other calls.

    Args:
        signature: The call.
        kernels: Its kernels.
    """
    first, *each = pieces(signature) if signature.name == "aten::linalg_qr" else (None,)
    begins = [at for at, each in enumerate(kernels) if each.name.startswith(_BEGINS_ORTHOGONAL)]
    if first is None or not each or len(begins) != len(each):
        return ()
    return (first.signature, kernels[: begins[0]], [], []), (each[-1].signature, kernels[begins[-1] :], [], [])


def _needed(
    calls: list[MeasuredCall], table: CostTable, roofline: Roofline, dtype: str, within: float
) -> list[MeasuredCall]:
    """Returns the calls of one variant that belong into the file of the GPU. Each call is left out,
    in a random order with a fixed seed, unless the calls that are left then predict it badly. At
    least four calls are kept for each axis of the family.

    Args:
        calls: The measured calls of the variant.
        table: The table of all of them.
        roofline: The roofline of the GPU.
        dtype: The data type of the variant.
        within: The relative error up to which a time may be off.
    """
    left_out = np.zeros(len(calls), bool)
    least = 4 * len(calls[0].dims)
    for index in np.random.default_rng(0).permutation(len(calls)):
        if len(calls) - int(left_out.sum()) <= least:
            break
        call = calls[index]
        left_out[index] = True
        answer = table.ask(call.dims, roofline, dtype, left_out)
        found = table.temporaries(call.dims, answer, roofline.multiprocessors)
        off = sum(abs(one - other) for one, other in zip(found, call.temporaries, strict=False))
        same = answer.nearest.names == call.names and len(found) == len(call.temporaries)
        if not same or off > _BYTES_OFF or abs(answer.total_ns / max(call.total_ns, 1) - 1) > within:
            left_out[index] = False
    return [call for call, out in zip(calls, left_out, strict=True) if not out]


def rows_of(
    tables: dict[str, dict[str, list[MeasuredCall]]], names: dict[str, int]
) -> tuple[list[str], list[list[int]], dict[str, dict[str, Raw]]]:
    """Returns tables of calls in the form that the file of a GPU has.

    Args:
        tables: The calls, by family of operators and variant.
        names: By the name of a kernel, the number that it has in the calls.

    Returns:
        `(kernels, sequences, rows)`, the fields `kernels`, `sequences` and `tables` of `GpuFile`.
        Only kernels that are used are there. The most used kernels and sequences are first.
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
    return replace(call, names=tuple(place[name] for name in call.names))


def peaks_of(facts: Mapping[str, Any]) -> Peaks:
    """Returns the peak rates of a GPU, from what `measure_facts` returned.

    FLOPs per ns are those of matrix products. The rate of the device memory is that of the largest
    copy within the device. The rate of the L2 cache is that of a copy of 4 MiB, from whose time
    that of the smallest copy is subtracted.
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
    first_uses: MeasuredStartup | None,
    measured_on: str,
    within: float,
    host_pace: float | None = None,
) -> GpuFile:
    """Returns the file of a measured GPU.

    Args:
        facts: What `measure_facts` returned.
        tables: The measured calls.
        hosts: What `measure_operator_calls` returned.
        first_uses: What first uses cost; None if it was not measured.
        measured_on: A text that names the GPU and its software.
        within: The relative error up to which similar calls must predict the time of a call for it
            to be left out of the file.
        host_pace: The pace of the host that made the calls; None if it was not measured.
    """
    pace = host_pace or 1.0
    device = {name: value for name, value in facts["device"].items() if name in DeviceEntry.__struct_fields__}
    peaks = peaks_of(facts)
    kept = tables.thinned(roofline_of(peaks, device["l2_bytes"], device["multiprocessors"]), within)
    kernels, sequences, rows = rows_of(kept, tables.names)
    modules = likely_modules(kept, tables.names, first_uses.module_of if first_uses else {})
    measured = {
        "queue_capacity": facts["queue"]["capacity"],
        "sleep_cycles_per_us": facts["queue"]["sleep_cycles_per_us"],
        "gap": facts["latencies"]["gap"],
        "event_latency": facts["latencies"]["event"],
        "timed_event": facts["latencies"]["timed_event"],
        "wake_latency": facts["latencies"]["wake"],
        "graph_gap": max(facts["graph"]["period"] - facts["latencies"]["tiny_kernel"], 0),
    }
    limits = {name: value for name, value in measured.items() if value}
    return GpuFile(
        schema="unstall.gpu/6",
        source="measured",
        note=f"Measured on {measured_on}.",
        known_error="not compared with a real run",
        device=DeviceEntry(**device),
        peaks=peaks,
        copies=[(at, held, size, ns) for at, held, size, ns, _ in facts["copies"]],
        memsets=[(size, ns) for size, ns in facts["memset"]],
        limits=limits,
        workspaces=workspaces_of(device["capability"]),
        startup=first_uses and first_uses.startup,
        operators_host_ns=own_ns(
            hosts,
            HostCosts(),
            round((facts["calls"]["bound_mul_in_place"] - facts["calls"]["mul_in_place"]) / pace),
            Limits(**limits),
            pace,
        ),
        host_pace=host_pace,
        kernels=kernels,
        kernel_modules=[modules.get(kernel, -1) for kernel in kernels] if first_uses else [],
        kernel_blocks=[tables.blocks.get(kernel, UNKNOWN) for kernel in kernels] if tables.blocks else [],
        sequences=sequences,
        tables=rows,
        origins=_origins(measured_on, first_uses is not None, bool(hosts)),
    )


def in_this_host(gpu: Gpu, pace: float, measured: str) -> GpuFile:
    """Returns the file of a GPU as it is in a machine with another host.

    Args:
        gpu: The GPU.
        pace: The pace of the machine's host.
        measured: A text that says by what the pace was measured.
    """
    file, like = gpu.file, gpu.file.like or gpu.name
    origins = {part: Origin("same", f"the {gpu.name}'s") for part in PARTS}
    origins["host calls"] = Origin("measured", f"{measured}: {pace:.2f} times the time that an H200's host takes")
    return msgspec.structs.replace(
        file,
        note=f"The {gpu.name}, with a host that takes {pace:.2f} times as long: measured by {measured}.",
        known_error="not compared with a real run",
        like=like,
        host_pace=pace,
        startup=None,
        operators_host_ns={},
        kernels=[],
        kernel_modules=[],
        kernel_blocks=[],
        sequences=[],
        tables={},
        origins=origins,
    )


def likely_modules(
    tables: dict[str, dict[str, list[MeasuredCall]]], names: Mapping[str, int], known: Mapping[str, int]
) -> dict[str, int]:
    """Returns the module of each kernel, by its name. If it was not measured, it is taken to be the
    one that most kernels of the same function are in, or else most kernels of the same variants.

    Args:
        tables: The calls, by family of operators and variant.
        names: By the name of a kernel, the number that it has in the calls.
        known: The modules of the kernels of which it was measured.
    """
    of_function: dict[tuple[str, frozenset[str]], Counter[int]] = {}
    for name, module in known.items():
        of_function.setdefault(_function(name), Counter())[module] += 1
    of_variants: dict[int, Counter[int]] = {}
    numbered = {names[name]: module for name, module in known.items() if name in names}
    for calls in (some for variants in tables.values() for some in variants.values()):
        launched = {kernel for call in calls for kernel in call.names}
        modules = Counter(numbered[kernel] for kernel in launched & numbered.keys())
        for kernel in launched - numbered.keys():
            of_variants.setdefault(kernel, Counter()).update(modules)
    found = dict(known)
    for name, number in names.items():
        likely = of_function.get(_function(name)) or of_variants.get(number)
        if name not in found and likely:
            found[name] = likely.most_common(1)[0][0]
    return found


def _function(kernel: str) -> tuple[str, frozenset[str]]:
    """Returns the part of a kernel's name that its variants share, and whether it works in half precision."""
    shared = re.split(r"\(|<(?!cutlass)|tilesize|_\d+x\d+", kernel, maxsplit=1)[0]
    return shared, frozenset(re.findall("bf16|bfloat16|half", kernel))


def _origins(measured_on: str, first_uses: bool, operators: bool) -> dict[Part, Origin]:
    """Returns where each part of the file of a measured GPU comes from. Only some of the host's
    costs are measured.

    Args:
        measured_on: A text that names the GPU and its software.
        first_uses: Whether first uses were measured.
        operators: Whether the host times of operators were measured.
    """
    others: dict[Part, Origin] = {
        "links": Origin("assumed", "PCIe 3.0 with 16 lanes, and the model by which NCCL tunes itself"),
        "workspaces": Origin("published", "torch's source, by compute capability"),
        "host calls": Origin(
            "measured",
            f"{measured_on}: operators. The others: an H200's host, as much faster or slower as operators are",
        ),
        "CPU operators": Origin("assumed", "rates of a server's CPU (AMD EPYC), 16 cores"),
    }
    if not operators:
        others["host calls"] = Origin("assumed", "an H200's host; operators could not be measured")
    if not first_uses:
        others["first uses"] = Origin("assumed", "they take no time, as they could not be measured")
    return {part: others.get(part, Origin("measured", measured_on)) for part in PARTS}


def workspaces_of(capability: list[int] | tuple[int, ...]) -> dict[str, int]:
    """Returns the bytes of the workspaces that torch gives to "cublas" and "cublaslt" on a GPU of
    this compute capability. The rules are those of torch's `getChosenWorkspaceSize` and
    `_getWorkspaceSize`.
    """
    hopper = capability[0] == 9
    return {"cublas": 32 << 20 if hopper else (4096 * 2 + 16 * 8) << 10, "cublaslt": 1 << 20}
