"""Predicts costs of operators and copies on a GPU: from its measured calls, or scaled from another GPU's calls."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from functools import cached_property

import numpy as np

from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.families import CallShape, Family, attention, convolutions, describe, reductions
from unstall.virtual.costs.families.indexing import trusted, without_checks
from unstall.virtual.costs.families.lists import launches, sizes_of
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.gpu_file import Gpu, gpu_named
from unstall.virtual.costs.host_work import host_work_ns
from unstall.virtual.costs.kernel_names import name_on
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost, Startup
from unstall.virtual.costs.no_kernel import runs_nothing
from unstall.virtual.costs.pieces import Piece, in_one_format, pieces, without_bias
from unstall.virtual.costs.roofline import roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, Estimate, of_rows

_OF_LIBRARIES = re.compile(r"_?(linalg_(?!vector_norm)|fft_|cholesky|triangular_solve|ormqr|geqrf|lu_)")
"""Operators of cuSOLVER and cuFFT, whose time does not follow from the bytes that they move."""
_LEAST = 10
"""The share, in thousandths, of a kernel of which nothing is known but that it is short."""
_THREADS = {(7, 5): 1_024, (8, 6): 1_536, (8, 9): 1_536, (12, 0): 1_536}
"""Maximum threads per multiprocessor, by compute capability. Other capabilities have 2,048."""
_DIRECTIONS = {
    CopyDirection.HOST_TO_DEVICE: "HtoD",
    CopyDirection.DEVICE_TO_HOST: "DtoH",
    CopyDirection.DEVICE_TO_DEVICE: "DtoD",
    CopyDirection.PEER_TO_PEER: "PtoP",
}


class MeasuredCosts:
    """Costs on `gpu`, from the tables of calls measured on `measured`. Both are the same GPU if `gpu` itself was
    measured.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self._roofline, self._measured_on = (
            roofline_of(each.file.peaks, each.file.device.l2_bytes, each.file.device.multiprocessors)
            for each in (gpu, measured)
        )
        self._tables: dict[tuple[str, str], CostTable | None] = {}

    @property
    def device(self) -> DeviceFacts:
        return self._gpu.facts

    @cached_property
    def host(self) -> HostCosts:
        return self._gpu.host

    @cached_property
    def limits(self) -> Limits:
        return self._gpu.limits

    @cached_property
    def startup(self) -> Startup:
        return self._gpu.startup

    @cached_property
    def _usual_host_ns(self) -> int:
        """Median host time in ns, for operators whose host time was not measured."""
        known = self._measured.file.operators_host_ns.values()
        return round(statistics.median(known)) if known else 0

    @property
    def known_error(self) -> str:
        """The prediction error on programs with known times, as a phrase for notes."""
        return self._gpu.file.known_error

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of one call. If a piece of the call resembles no measured call, its cost is one kernel with
        the roofline time.

        Raises:
            NotImplementedError: The operator is one of cuSOLVER or cuFFT.
        """
        name = signature.name.removeprefix("aten::")
        if runs_nothing(signature):
            return OperatorCost(())
        if _OF_LIBRARIES.match(name):
            raise NotImplementedError("no measured call resembles it")
        host_ns = self._measured.file.operators_host_ns.get(name, self._usual_host_ns)
        kernels: list[Kernel] = []
        temporaries: list[tuple[int, ...]] = []
        held: tuple[int, ...] = ()  # bytes that the next pass takes over
        workspaces: dict[str, int] = {}
        for piece in self._pieces(signature):
            found, passes = self._piece(piece.signature)
            kernels += found
            held += piece.holds
            if passes:
                temporaries += ((*held, *passes[0]), *passes[1:])
                held = ()
            workspaces |= self._workspaces(piece.signature)
        if held:
            temporaries.append(held)
        return OperatorCost(tuple(kernels), host_ns, tuple(temporaries), tuple(workspaces.items()))

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns the cost of one kernel that moves the bytes of all tensors once, at the GPU's peak rate."""
        moved = sum(tensor.distinct_bytes for tensor in (*signature.tensors, *signature.results))
        name = signature.name.partition("::")[2] or signature.name
        kernel = self._kernel(f"{name}_kernel", self._roofline.ns(0.0, float(moved), "float32"))
        return OperatorCost((kernel,), self._usual_host_ns)

    def _pieces(self, signature: Signature) -> tuple[Piece, ...]:
        """Splits a call into pieces. A convolution's bias becomes its own piece if the most similar measured
        convolution has no bias.
        """
        apart = pieces(signature)
        last = apart[-1].signature
        described = describe(last)
        if described is None or described[0].name != "convolution":
            return apart
        if self._unlike(last)[0]:
            apart = (*apart[:-1], *in_one_format(last))
            last = apart[-1].signature
        bare = without_bias(last)
        if bare is not None and self._unlike(bare[0], False) < self._unlike(last, True):
            return (*apart[:-1], *map(Piece, bare))
        return apart

    def _unlike(self, signature: Signature, bias: bool | None = None) -> tuple[float, float]:
        """Returns how far a convolution is from the nearest measured convolution: (number of words in which their
        variants differ, distance in doublings). With `bias`, looks only at measured convolutions with (True) or without
        (False) a bias.
        """
        described = describe(signature)
        table = self._find(*described) if described is not None else None
        if described is None or table is None:
            return math.inf, math.inf
        if bias is not None and convolutions.with_bias(table.variant) != bias:
            return math.inf, math.inf
        asked, measured = described[1].variants[0].split(), table.variant.split()
        differ = sum(one != other for one, other in zip(asked, measured, strict=True))
        return differ, table.ask(described[1].dims, self._roofline).distance

    def _piece(self, signature: Signature) -> tuple[tuple[Kernel, ...], tuple[tuple[int, ...], ...]]:
        """Returns (kernels, bytes of the temporary allocations of each pass)."""
        name = signature.name.removeprefix("aten::")
        described = describe(signature)
        if described is None:
            return (Kernel(f"{name}_kernel", round(self._roofline.floor_ns), share=_LEAST),), ()
        family, shape = described
        dtype = shape.variants[0].partition(" ")[0]
        table = self._find(family, shape)
        if table is None:
            total = self._roofline.ns(*family.work(shape.variants[0], shape.dims), dtype)
            return (self._kernel(f"{name}_kernel", total),), ()
        answer = table.ask(shape.dims, self._roofline, dtype)
        share = self._share(family, table, shape.dims, answer.total_ns, dtype)
        kernels = self._kernels(answer, share, signature if family.name == "list" else None)
        same = family.name != "elementwise" or table.variant.split()[1:2] == shape.variants[0].split()[1:2]
        if not same and len(kernels) == 1:
            kernels = (self._kernel(f"{name}_kernel", answer.total_ns, share),)
        temporaries = table.temporaries(shape.dims, answer)
        if trusted(signature):
            kernels, temporaries = without_checks(kernels, temporaries)
        if family.name == "reduction" and answer.distance > 0:
            kernels, temporaries = self._cut(signature, shape, kernels, temporaries)
        if family.name == "attention":
            kernels = (*map(self._zeroing, attention.zeroed(signature)), *kernels)
        turned = family.name == "convolution" and convolutions.turns(table.variant)
        if turned and not convolutions.turns(shape.variants[0]):
            kernels, temporaries = convolutions.without_turning(kernels, temporaries, table.variant, shape.dims)
        capability = self._gpu.file.device.capability
        kernels = tuple(replace(each, name=name_on(capability, each.name, name, dtype)) for each in kernels)
        if family.name == "convolution":
            return kernels, tuple((size,) for size in temporaries)  # each gradient is a pass with one allocation
        return kernels, (temporaries,) if temporaries else ()

    def _share(self, family: Family, table: CostTable, dims: tuple[int, ...], ns: float, dtype: str) -> int:
        """Returns the share of the device that a call uses, in thousandths: of its multiprocessors if the number of
        blocks is known; or of the rate that the largest calls of the same variant reach. The larger one counts.
        """
        blocks = family.blocks(table.variant, dims) / self._gpu.file.device.multiprocessors if family.blocks else 0.0
        rate = table.ideal_ns(dims, self._roofline, dtype) / max(ns, 1.0)
        return min(max(round(1000 * max(blocks, rate)), _LEAST), 1000)

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns the ns that an operator computes on the CPU, with the threads that the program set, or 0."""
        return host_work_ns(signature, threads, self.host)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns the ns of a copy, interpolated between measured sizes. Copies above the largest measured size have
        the same bytes per ns as that size.
        """
        of = _DIRECTIONS.get(direction, "DtoD")
        rows = [
            (size, ns)
            for at, held, size, ns in self._gpu.file.copies
            if at == of and (held == pinned or of in ("DtoD", "PtoP"))
        ]
        return _between(size_bytes, rows or [(size, ns) for at, _, size, ns in self._gpu.file.copies if at == "DtoD"])

    def _find(self, family: Family, shape: CallShape) -> CostTable | None:
        """Returns the table of the first measured variant of the shape, or None if none was measured."""
        tables = (self._table(family, variant) for variant in shape.variants)
        return next((table for table in tables if table is not None), None)

    def _table(self, family: Family, variant: str) -> CostTable | None:
        key = (family.name, variant)
        if key not in self._tables:
            rows = self._measured.file.tables.get(family.name, {}).get(variant)
            calls = of_rows(rows, len(family.axes), self._measured.file.sequences) if rows else None
            self._tables[key] = CostTable(family, variant, calls, self._measured_on) if calls else None
        return self._tables[key]

    def _kernels(self, answer: Estimate, share: int, of_lists: Signature | None) -> tuple[Kernel, ...]:
        """Returns the nearest call's kernels, scaled to the estimated total. For an operator on lists of tensors,
        repeats each kernel as often as the limits of one launch require.
        """
        names = self._measured.file.kernels
        before = max(answer.nearest.total_ns, 1)
        if of_lists is None:
            parts = zip(answer.nearest.names, answer.nearest.ns, strict=True)
            return tuple(self._kernel(names[name], ns / before * answer.total_ns, share) for name, ns in parts)
        together: dict[int, float] = {}
        for name, ns in zip(answer.nearest.names, answer.nearest.ns, strict=True):
            together[name] = together.get(name, 0.0) + ns / before * answer.total_ns
        sizes = sizes_of(of_lists)
        return tuple(
            self._kernel(names[name], ns * part, share)
            for name, ns in together.items()
            for part in launches(names[name], sizes) or [1.0]
        )

    def _kernel(self, name: str, ns: float, share: int = 1000) -> Kernel:
        kind = DeviceKind.KERNEL
        if name.startswith("Mem"):
            kind = DeviceKind.MEMSET if name.startswith("Memset") else DeviceKind.COPY
        duration = max(1, round(ns))
        return Kernel(name, duration, kind, share)

    def _cut(
        self, signature: Signature, shape: CallShape, kernels: tuple[Kernel, ...], temporaries: tuple[int, ...]
    ) -> tuple[tuple[Kernel, ...], tuple[int, ...]]:
        """Adds the memset of a reduction's counters if the nearest measured reduction lacks it, or removes the memset
        if the reduction needs none.
        """
        device = self._gpu.file.device
        threads = _THREADS.get(device.capability, 2_048)
        taken = reductions.across_blocks(signature, shape, device.multiprocessors, threads)
        bare = tuple(kernel for kernel in kernels if kernel.kind is not DeviceKind.MEMSET)
        if taken is None or len(kernels) - len(bare) == bool(taken):
            return kernels, temporaries
        return ((self._zeroing(taken[-1]), *bare), taken) if taken else (bare, temporaries[:-2])

    def _zeroing(self, size_bytes: int) -> Kernel:
        return self._kernel("Memset (Device)", _between(size_bytes, self._gpu.file.memsets))

    def _workspaces(self, signature: Signature) -> dict[str, int]:
        """Returns each library's workspace bytes for a matrix product. cuBLASLt is left out unless a bias is added."""
        name = signature.name.removeprefix("aten::")
        if name not in CUBLAS:
            return {}
        sizes = self._gpu.file.workspaces or self._measured.file.workspaces
        lt = name == "_addmm_activation" or (name == "addmm" and len(signature.tensors[0].sizes) == 1)
        return {key: size for key, size in sizes.items() if key != "cublaslt" or lt}


def costs_of(name: str) -> MeasuredCosts:
    """Returns the costs on a GPU, given its name or file. Raises UsageError for an unknown GPU."""
    gpu = gpu_named(name)
    return MeasuredCosts(gpu, gpu.measured)


def _between(size: int, rows: list[tuple[int, int]]) -> int:
    sizes, times = np.array(sorted(rows), float).T
    if size > sizes[-1]:
        return int(times[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, times)))
