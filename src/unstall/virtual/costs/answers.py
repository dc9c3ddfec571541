"""Predicts the costs of operators and copies on a GPU.

The predictions come from calls that were measured on the GPU. If the GPU was not measured, the predictions come from
calls that were measured on another GPU. These predictions are scaled to the GPU that was not measured.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from unstall.replay.program import WHOLE
from unstall.timeline.columns import CopyDirection, DeviceKind
from unstall.virtual.costs.collectives import Operation, Transfer, transfer
from unstall.virtual.costs.families import FAMILIES, CallShape, Family, attention, convolutions, describe, reductions
from unstall.virtual.costs.families.family import Work, item_bytes
from unstall.virtual.costs.families.indexing import timed_as, trusted, without_checks
from unstall.virtual.costs.families.lists import launches, sizes_of
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.gpu_file import Gpu, gpu_named
from unstall.virtual.costs.host_work import host_work_ns
from unstall.virtual.costs.kernel_names import in_float16, name_on
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost, Startup
from unstall.virtual.costs.no_kernel import runs_nothing
from unstall.virtual.costs.occupancy import MOST, threads_on, with_blocks
from unstall.virtual.costs.piece import Piece
from unstall.virtual.costs.pieces import in_one_format, pieces, without_bias
from unstall.virtual.costs.roofline import HELD, Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, Estimate, of_rows

_OF_LIBRARIES = re.compile(r"_?(linalg_(?!vector_norm)|fft_|cholesky|triangular_solve|ormqr|geqrf|lu_)")
"""Operators of cuSOLVER and cuFFT. Their time cannot be computed from the bytes that they move."""
_LEAST = 10
"""The share of the device, in thousandths, that a short kernel uses if no more is known about the kernel."""
_WHOLE_MULTIPROCESSORS = ("product", "convolution", "attention")
"""Families whose thread blocks are taken to fill a multiprocessor if their size is unknown."""
_LAST_WITHOUT_TF32 = (7, 5)
_PieceCost: TypeAlias = tuple[tuple[Kernel, ...], tuple[tuple[int, ...], ...]]
_DIRECTIONS = {
    CopyDirection.HOST_TO_DEVICE: "HtoD",
    CopyDirection.DEVICE_TO_HOST: "DtoH",
    CopyDirection.DEVICE_TO_DEVICE: "DtoD",
    CopyDirection.PEER_TO_PEER: "PtoP",
}


def _multiplies_in_tf32(gpu: Gpu) -> bool:
    return tuple(gpu.file.device.capability) >= (8, 0)


def _tf32_rate(gpu: Gpu, roofline: Roofline) -> float:
    return roofline.tf32_flops_per_ns if _multiplies_in_tf32(gpu) else roofline.flops_per_ns


def _total_ns(kernels: tuple[Kernel, ...]) -> int:
    return sum(kernel.duration_ns for kernel in kernels)


def _lasting(kernels: tuple[Kernel, ...], least_ns: int) -> tuple[Kernel, ...]:
    """Returns the kernels. If they take less than this time together, they are scaled up to it."""
    scale = max(1.0, least_ns / _total_ns(kernels))
    return tuple(replace(kernel, duration_ns=round(kernel.duration_ns * scale)) for kernel in kernels)


def _called(variant: str) -> str:
    """Extracts the operator's name from the variant of a call. Leaves out the overload."""
    return " ".join(variant.split()[1:2]).partition(".")[0]


class MeasuredCosts:
    """Costs on `gpu`, from the tables of calls that were measured on the GPU `measured`.

    If `gpu` was measured, `gpu` and `measured` are the same GPU.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self._roofline, self._measured_on = (
            roofline_of(each.file.peaks, each.file.device.l2_bytes, each.file.device.multiprocessors)
            for each in (gpu, measured)
        )
        self._tables: dict[tuple[str, str, bool], CostTable | None] = {}

    def _roofline_for(self, family: Family, dtype: str) -> Roofline:
        """Returns the GPU's roofline for calls of a family in a type.

        Tensor cores before Ampere multiply neither in bfloat16 nor in TF32. Convolutions in float32 were measured in
        TF32, which cuDNN uses by default, so they scale by the rates of TF32.
        """
        own = self._roofline
        if dtype == "bfloat16" and not _multiplies_in_tf32(self._gpu):
            return replace(own, half_flops_per_ns=own.flops_per_ns)
        if family.name == "convolution" and dtype == "float32":
            ratio = _tf32_rate(self._gpu, own) / _tf32_rate(self._measured, self._measured_on)
            return replace(own, flops_per_ns=self._measured_on.flops_per_ns * ratio)
        return own

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
    def launched_by(self) -> dict[str, set[str]]:
        file = self._measured.file
        found: dict[str, set[str]] = {}
        for family, tables in file.tables.items():
            axes = len(FAMILIES[family].axes)
            for variant, rows in tables.items():
                name = _called(variant)
                if name in self.startup.kernels:
                    for sequence in {row[axes] for row in rows}:
                        for kernel in file.sequences[sequence]:
                            found.setdefault(file.kernels[kernel], set()).add(name)
        return found

    @cached_property
    def _usual_host_ns(self) -> int:
        """Median host time in ns, for operators whose host time was not measured."""
        known = self._measured.file.operators_host_ns.values()
        return round(statistics.median(known)) if known else 0

    @property
    def known_error(self) -> str:
        """The prediction error on programs with known times, as a text for notes."""
        return self._gpu.file.known_error

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of one call.

        If a piece of the call is like no measured call, the cost of the piece is one kernel with the roofline time.

        Raises:
            NotImplementedError: The operator belongs to cuSOLVER or cuFFT.
        """
        name = signature.name.removeprefix("aten::")
        if runs_nothing(signature):
            return OperatorCost(())
        if _OF_LIBRARIES.match(name):
            raise NotImplementedError("no measured call resembles it")
        if not _multiplies_in_tf32(self._gpu):
            signature = replace(signature, precision="")
        split = self._pieces(signature)
        usual = self._put_together(signature, split, self._piece)
        if not any(piece.signature.name in convolutions.OPERATORS for piece in split):
            return usual
        fallback = self._put_together(signature, split, self._without_workspace)
        return usual if fallback.temporaries == usual.temporaries else replace(usual, fallback=fallback)

    def _put_together(
        self, signature: Signature, split: tuple[Piece, ...], piece_cost: Callable[[Signature], _PieceCost]
    ) -> OperatorCost:
        """Returns the cost of a call, given its pieces and the cost of each."""
        name = signature.name.removeprefix("aten::")
        kernels: list[Kernel] = []
        temporaries: list[tuple[int, ...]] = []
        held: tuple[int, ...] = ()  # bytes that the next pass takes over
        workspaces: dict[str, int] = {}
        known: dict[int, _PieceCost] = {}  # the same piece may occur many times
        for piece in split:
            if piece.ns is not None:
                known[id(piece)] = (self._kernel(f"{name}_kernel", piece.ns),), ()
            elif id(piece) not in known:
                known[id(piece)] = piece_cost(piece.signature)
            found, passes = known[id(piece)]
            kernels += (replace(found[0], host_ns=piece.host_ns), *found[1:]) if piece.host_ns else found
            held += piece.holds
            if passes:
                temporaries += ((*held, *passes[0]), *passes[1:])
                held = ()
            if piece.takes_workspace:
                workspaces |= self._workspaces(piece.signature)
        if held:
            temporaries.append(held)
        host_ns = self._measured.file.operators_host_ns.get(timed_as(signature), self._usual_host_ns)
        lasting = _lasting(tuple(kernels), self._link_ns(signature)) if kernels else ()
        return OperatorCost(lasting, host_ns, tuple(temporaries), tuple(workspaces.items()))

    def _link_ns(self, signature: Signature) -> int:
        """Returns how long a call's kernels read and write memory of the host over the link, in ns.

        Both directions run at the same time, each at the rate of copies from or to pinned memory.
        """
        directions = CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST
        ns = [
            self.copy_ns(each, way, pinned=True)
            for each, way in zip(signature.host_bytes, directions, strict=True)
            if each
        ]
        return max(ns, default=0)

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns the cost of one kernel that moves the bytes of all tensors once, at the GPU's peak rate."""
        moved = sum(tensor.distinct_bytes for tensor in (*signature.tensors, *signature.results))
        name = signature.name.partition("::")[2] or signature.name
        kernel = self._kernel(f"{name}_kernel", self._roofline.ns(Work(0.0, float(moved)), "float32"))
        return OperatorCost((kernel,), self._usual_host_ns)

    def _pieces(self, signature: Signature) -> tuple[Piece, ...]:
        """Splits a call into pieces.

        The bias of a convolution becomes a separate piece if the most similar measured convolution has no bias.
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
        """Returns how much a convolution differs from the most similar measured convolution.

        The result is (number of words in which the variants differ, distance in doublings). If `bias` is True, only
        measured convolutions with a bias are compared. If `bias` is False, only those without a bias are compared.
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

    def _without_workspace(self, signature: Signature) -> _PieceCost:
        """Returns (kernels, allocations) of a piece if the device has no room for the workspace of a convolution.

        cuDNN then tries its other algorithms, at last those without a workspace. None of these is faster than the
        first: otherwise, cuDNN would have chosen it first.
        """
        kernels, allocations = self._piece(signature)
        if signature.name not in convolutions.OPERATORS or not allocations:
            return kernels, allocations
        others, _ = self._piece(signature, bare=True)
        return _lasting(others, _total_ns(kernels)), ()

    def _piece(self, signature: Signature, *, bare: bool = False) -> _PieceCost:
        """Returns (kernels, allocations) of a piece.

        A piece frees its temporary memory at the end of each pass. For example, the backward of a convolution has a
        pass for each gradient. `allocations` has one tuple for each pass: the bytes of each temporary allocation. If
        `bare` is True, the piece has no allocations: only measured calls without temporary memory are used.
        """
        name = signature.name.removeprefix("aten::")
        described = describe(signature)
        if described is None:
            return (Kernel(f"{name}_kernel", round(self._roofline.floor_ns), share=_LEAST),), ()
        family, shape = described
        dtype = shape.variants[0].partition(" ")[0]
        table = self._find(family, shape, bare)
        if table is None:
            total = self._roofline_for(family, dtype).ns(family.work(shape.variants[0], shape.dims), dtype)
            return (self._kernel(f"{name}_kernel", total),), ()
        answer = table.ask(shape.dims, self._roofline_for(family, dtype), dtype)
        answer = self._read_once(signature, family, shape, answer)
        share = self._share(table, shape.dims, family, answer, dtype)
        kernels = self._kernels(answer, share, signature if family.name == "list" else None)
        kernels = self._with_blocks(kernels, family, table.variant, shape.dims)
        kernels = self._with_data(kernels, family.work(table.variant, shape.dims).moved)
        same = family.name != "elementwise" or _called(table.variant) == _called(shape.variants[0])
        if not same and len(kernels) == 1:
            kernels = (replace(kernels[0], name=f"{name}_kernel", duration_ns=max(1, round(answer.total_ns))),)
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
        if family.name == "convolution":  # temporaries are copies of tensors, perhaps of another type than was measured
            ratio = item_bytes(shape.variants[0]) / item_bytes(table.variant)
            temporaries = tuple(round(size * ratio) for size in temporaries)
        if dtype == "float16" and table.variant.startswith("bfloat16"):
            kernels = tuple(replace(each, name=in_float16(each.name)) for each in kernels)
        if dtype == "tf32" and not table.variant.startswith("tf32"):
            ieee, _ = self._piece(replace(signature, precision="ieee"))  # cuBLAS may, but need not, round to TF32
            longest = max(kernels, key=lambda kernel: kernel.duration_ns)
            tf32 = replace(longest, name=f"{name}_tf32_kernel", duration_ns=max(1, round(answer.total_ns)))
            return min((tf32,), ieee, key=_total_ns), (temporaries,) if temporaries else ()
        capability = self._gpu.file.device.capability
        if family.name == "convolution" and dtype == "float32" and signature.precision == "ieee":  # measured in TF32
            products = convolutions.products(signature)
            capability = _LAST_WITHOUT_TF32
            kernels = _lasting(kernels, sum(_total_ns(self._piece(product)[0]) for product in products))
        kernels = tuple(replace(each, name=name_on(capability, each.name, name, dtype)) for each in kernels)
        if family.name == "convolution":
            return kernels, tuple((size,) for size in temporaries)  # each gradient is a pass with one allocation
        return kernels, (temporaries,) if temporaries else ()

    def _read_once(self, signature: Signature, family: Family, shape: CallShape, answer: Estimate) -> Estimate:
        """Returns the estimate without reads of memory that an earlier argument has too.

        In measured calls, each argument has its own memory.
        """
        if not signature.repeated_bytes:
            return answer
        dtype = shape.variants[0].partition(" ")[0]
        roofline = self._roofline_for(family, dtype)
        work = family.work(shape.variants[0], shape.dims)
        once = max(1 - signature.repeated_bytes / max(work.moved, 1.0), 0.0) * roofline.memory_ns(work)
        least = roofline.floor_ns + max(roofline.computing_ns(work.flops, dtype), once)
        return replace(answer, total_ns=answer.total_ns * least / roofline.ns(work, dtype))

    def _share(self, table: CostTable, dims: tuple[int, ...], family: Family, answer: Estimate, dtype: str) -> int:
        """Returns the share of the device's rate that a call uses, in thousandths: its rate, divided by the rate that
        the largest calls of the same variant reach.
        """
        rate = table.ideal_ns(dims, self._roofline_for(family, dtype), dtype) / max(answer.total_ns, 1.0)
        return max(round(1000 * min(rate, 1.0)), _LEAST)

    def _with_blocks(
        self, kernels: tuple[Kernel, ...], family: Family, variant: str, dims: tuple[int, ...]
    ) -> tuple[Kernel, ...]:
        if family.blocks is None:
            return kernels
        device = self._gpu.file.device
        unknown = WHOLE if family.name in _WHOLE_MULTIPROCESSORS else None
        blocks_of = partial(family.blocks, variant, dims)
        return with_blocks(
            kernels, blocks_of, device.capability, device.multiprocessors, self._roofline.floor_ns, unknown
        )

    def _with_data(self, kernels: tuple[Kernel, ...], size: float) -> tuple[Kernel, ...]:
        """Returns the kernels with their use of the L2 cache.

        In measured calls, the data of the call before is still in the cache. If it is not, the call takes at least as
        long as its bytes at the memory's rate.
        """
        if len(kernels) != 1:
            return kernels
        held = size / (HELD * self._roofline.l2_bytes)
        least = self._roofline.floor_ns + size / self._roofline.bytes_per_ns
        more = max(round(least) - kernels[0].duration_ns, 0) if held <= 1 else 0
        return (replace(kernels[0], cached=min(round(WHOLE * held), MOST), uncached_ns=more),)

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns the time in ns for which an operator computes on the CPU, or 0.

        `threads` is the program's number of threads.
        """
        return host_work_ns(signature, threads, self.host)

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        device = self._gpu.file.device
        return transfer(operation, size_bytes, self._gpu.links, device.capability, ranks)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns the duration of a copy in ns, interpolated between measured sizes.

        Above the largest measured size, copies have the same rate as the largest measured copy.
        """
        of = _DIRECTIONS.get(direction, "DtoD")
        rows = [
            (size, ns)
            for at, held, size, ns in self._gpu.file.copies
            if at == of and (held == pinned or of in ("DtoD", "PtoP"))
        ]
        return _between(size_bytes, rows or [(size, ns) for at, _, size, ns in self._gpu.file.copies if at == "DtoD"])

    def _find(self, family: Family, shape: CallShape, bare: bool = False) -> CostTable | None:
        """Returns the table of the first measured variant in `shape.variants`, or None if no variant was measured. If
        `bare` is True, the tables have only calls without temporary memory.
        """
        tables = (self._table(family, variant, bare) for variant in shape.variants)
        return next((table for table in tables if table is not None), None)

    def _table(self, family: Family, variant: str, bare: bool) -> CostTable | None:
        key = (family.name, variant, bare)
        if key not in self._tables:
            rows = self._measured.file.tables.get(family.name, {}).get(variant)
            calls = of_rows(rows, len(family.axes), self._measured.file.sequences) if rows else []
            calls = [call for call in calls if not (bare and call.temporaries)]
            self._tables[key] = CostTable(family, variant, calls, self._measured_on) if calls else None
        return self._tables[key]

    def _kernels(self, answer: Estimate, share: int, of_lists: Signature | None) -> tuple[Kernel, ...]:
        """Returns the kernels of the most similar measured call, scaled to the estimated total time.

        For an operator on lists of tensors, one launch can process only a limited part. So each kernel is repeated
        until all parts are processed.
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
        """Returns a kernel that uses `share` thousandths of the device.

        For a memset or a copy, ignores `share`. Its share is computed from `ns` instead: the part of this time that
        exceeds the time of an empty kernel.
        """
        kind = DeviceKind.KERNEL
        if name.startswith("Mem"):
            kind = DeviceKind.MEMSET if name.startswith("Memset") else DeviceKind.COPY
            share = max(round(1000 * (1 - self._roofline.floor_ns / max(ns, 1.0))), _LEAST)
        duration = max(1, round(ns))
        return Kernel(name, duration, kind, share)

    def _cut(
        self, signature: Signature, shape: CallShape, kernels: tuple[Kernel, ...], temporaries: tuple[int, ...]
    ) -> tuple[tuple[Kernel, ...], tuple[int, ...]]:
        """Adds or removes a memset of counters. `kernels` are the kernels of the most similar measured reduction.

        Adds the memset if the reduction needs it. Removes the memset if the reduction does not need it.
        """
        device = self._gpu.file.device
        threads = threads_on(device.capability)
        taken = reductions.across_blocks(signature, shape, device.multiprocessors, threads)
        bare = tuple(kernel for kernel in kernels if kernel.kind is not DeviceKind.MEMSET)
        if taken is None or len(kernels) - len(bare) == bool(taken):
            return kernels, temporaries
        return ((self._zeroing(taken[-1]), *bare), taken) if taken else (bare, temporaries[:-2])

    def _zeroing(self, size_bytes: int) -> Kernel:
        return self._kernel("Memset (Device)", _between(size_bytes, self._gpu.file.memsets))

    def _workspaces(self, signature: Signature) -> dict[str, int]:
        """Returns {library: workspace bytes} of a matrix product. Has "cublaslt" only if the product adds a bias."""
        name = signature.name.removeprefix("aten::")
        if name not in CUBLAS:
            return {}
        sizes = self._gpu.file.workspaces or self._measured.file.workspaces
        lt = name == "_addmm_activation" or (name == "addmm" and len(signature.tensors[0].sizes) == 1)
        return {key: size for key, size in sizes.items() if key != "cublaslt" or lt}


def costs_of(name: str) -> MeasuredCosts:
    """Returns the costs on a GPU.

    `name` is the name of the GPU or of its file. Raises UsageError for an unknown GPU.
    """
    gpu = gpu_named(name)
    return MeasuredCosts(gpu, gpu.measured)


def _between(size: int, rows: list[tuple[int, int]]) -> int:
    sizes, times = np.array(sorted(rows), float).T
    if size > sizes[-1]:
        return int(times[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, times)))
