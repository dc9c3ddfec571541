"""Predicts what operators and copies cost on a GPU, from calls that were measured.

The calls were measured on that GPU, or on another one. In the second case, their times are scaled
to the GPU by the peak rates of both.
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
from unstall.virtual.costs.families import (
    CallShape,
    Family,
    attention,
    convolutions,
    describe,
    elementwise,
    reductions,
)
from unstall.virtual.costs.families.conv_kernels import halves
from unstall.virtual.costs.families.family import Measured, Work, item_bytes
from unstall.virtual.costs.families.indexing import of_blocks_ns, sorted_in_one_tile, timed_as, trusted, without_checks
from unstall.virtual.costs.families.lists import launches, sizes_of
from unstall.virtual.costs.families.others import knows_its_size
from unstall.virtual.costs.families.products import CUBLAS
from unstall.virtual.costs.gpu_file import Gpu, gpu_named
from unstall.virtual.costs.host_work import host_work_ns
from unstall.virtual.costs.kernel_names import in_float16, name_on
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost, Startup
from unstall.virtual.costs.no_kernel import runs_nothing
from unstall.virtual.costs.occupancy import MOST, threads_on, with_blocks
from unstall.virtual.costs.piece import Piece
from unstall.virtual.costs.pieces import by_gradient, in_one_format, pieces, without_bias
from unstall.virtual.costs.roofline import HELD, Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, Estimate, MeasuredCall, of_rows

_OF_LIBRARIES = re.compile(r"_?(linalg_(?!vector_norm)|fft_|cholesky|triangular_solve|ormqr|geqrf|lu_)")
"""Matches the operators of cuSOLVER and cuFFT. Their time does not follow from the bytes that they
move.
"""
_LEAST = 10
"""The share of the device, in thousandths, that a kernel uses at least."""
_WHOLE_MULTIPROCESSORS = ("product", "convolution", "attention")
"""The families of operators whose thread blocks are taken to fill a multiprocessor each if their
size is unknown.
"""
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
    """Returns kernels with at least `least_ns` in total. If they take less, all of them are
    lengthened by the same factor.
    """
    scale = max(1.0, least_ns / _total_ns(kernels))
    return tuple(replace(kernel, duration_ns=round(kernel.duration_ns * scale)) for kernel in kernels)


def _in_one(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Returns the longest of some kernels, with the time of all of them. A matrix product without a
    workspace is one kernel: there is no room for sums of parts, which a second kernel adds up.
    """
    longest = max(kernels, key=lambda kernel: kernel.duration_ns)
    return (replace(longest, duration_ns=_total_ns(kernels)),)


def _variant(signature: Signature) -> str:
    described = describe(signature)
    return described[1].variants[0] if described else ""


def _called(variant: str) -> str:
    """Returns the name of the operator in a variant of element-wise calls, without the overload:
    "add" for "float32 add.Tensor ==".
    """
    return " ".join(variant.split()[1:2]).partition(".")[0]


class MeasuredCosts:
    """The costs of operators and copies on one GPU, from calls that were measured on the same or on
    another GPU.

    Args:
        gpu: The GPU whose costs are predicted.
        measured: The GPU on which the calls were measured. If `gpu` was measured, it is the same
            GPU.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self._roofline, self._measured_on = (
            roofline_of(each.file.peaks, each.file.device.l2_bytes, each.file.device.multiprocessors)
            for each in (gpu, measured)
        )
        self._tables: dict[tuple[str, str, bool], CostTable | None] = {}

    def _roofline_for(self, family: Family, dtype: str) -> Roofline:
        """Returns the roofline of the GPU for the calls of a family of operators in one data type.

        Two cases have rates of their own. Before Ampere, tensor cores multiply neither in bfloat16
        nor in TF32. And convolutions in float32 were measured in TF32, which cuDNN uses by default,
        so their times are scaled by the rates for TF32.
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
        """The device's name and memory, which programs and timelines see."""
        return self._gpu.facts

    @cached_property
    def host(self) -> HostCosts:
        """The costs of calls and of other work on the host."""
        return self._gpu.host

    @cached_property
    def limits(self) -> Limits:
        """The latencies and limits of the device."""
        return self._gpu.limits

    @cached_property
    def startup(self) -> Startup:
        """What first uses cost the host."""
        return self._gpu.startup

    @cached_property
    def _modules(self) -> list[int]:
        """The module of each kernel of the file; -1 if none is known."""
        file = self._measured.file
        if not file.kernel_modules or self._measured.startup is not self.startup:
            return [-1] * len(file.kernels)
        return file.kernel_modules

    @cached_property
    def _usual_host_ns(self) -> int:
        """The host time, in ns, that is taken for an operator whose host time was not measured: the
        median of the others.
        """
        known = self._measured.file.operators_host_ns.values()
        return round(statistics.median(known)) if known else 0

    @property
    def known_error(self) -> str:
        """How wrong predictions were for programs whose real times are known, as a text that
        reports show.
        """
        return self._gpu.file.known_error

    def cost(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call of an operator.

        CUDA may run a call in several pieces. An element-wise piece that was not measured takes as
        long as another element-wise operator.

        Raises:
            NotImplementedError: No call like it was measured, and it is not element-wise, or belongs to cuSOLVER or
                cuFFT.
        """
        if runs_nothing(signature):
            return OperatorCost(())
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
        """Returns the cost of a call that CUDA runs in pieces.

        Args:
            signature: The call.
            split: The pieces, in the order in which they run.
            piece_cost: A function that returns the kernels and the temporary memory of one piece.
        """
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
                if not piece.takes_workspace:
                    known[id(piece)] = _in_one(known[id(piece)][0]), ()
            found, passes = known[id(piece)]
            if piece.zeroes:
                kernels.append(self._zeroing(piece.zeroes))
            kernels += (replace(found[0], host_ns=piece.host_ns), *found[1:]) if piece.host_ns else found
            held += piece.holds
            if passes:
                temporaries += ((*held, *passes[0]), *passes[1:])
                held = ()
            if piece.takes_workspace:
                workspaces |= self._workspaces(piece.signature)
        if held:
            temporaries.append(held)
        lasting = _lasting(tuple(kernels), self._link_ns(signature)) if kernels else ()
        return OperatorCost(
            lasting, self._operator_ns(timed_as(signature)), tuple(temporaries), tuple(workspaces.items())
        )

    def _link_ns(self, signature: Signature) -> int:
        """Returns how long the kernels of a call take to read and write memory of the host over the
        link, in ns.

        Reads and writes run at the same time, each at the rate of copies from or to pinned memory.
        """
        directions = CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST
        ns = [
            self.copy_ns(each, way, pinned=True)
            for each, way in zip(signature.host_bytes, directions, strict=True)
            if each
        ]
        return max(ns, default=0)

    def guess(self, signature: Signature) -> OperatorCost:
        """Returns the cost of a call as one kernel that moves the bytes of each tensor once, at the
        GPU's peak rate.
        """
        moved = sum(tensor.distinct_bytes for tensor in (*signature.tensors, *signature.results))
        name = signature.name.partition("::")[2] or signature.name
        kernel = self._kernel(f"{name}_kernel", self._roofline.ns(Work(0.0, float(moved)), "float32"))
        return OperatorCost((kernel,), self._operator_ns(name))

    def _operator_ns(self, name: str) -> int:
        """Returns the host time of the work within an operator, in ns (see `OperatorCost`)."""
        return self._measured.file.operators_host_ns.get(name, self._usual_host_ns)

    def _pieces(self, signature: Signature) -> tuple[Piece, ...]:
        """Returns the pieces in which CUDA runs a call, in order.

        The gradients of a convolution are pieces. The pieces of a convolution also depend on what
        was measured: its bias becomes a piece of its own if the measured convolution that is most
        like it has no bias.
        """
        apart = pieces(signature)
        last = apart[-1].signature
        described = describe(last)
        if described is None or described[0].name != "convolution":
            return apart
        if self._unlike(last)[0]:
            apart = (*apart[:-1], *in_one_format(last))
            last = apart[-1].signature
        if convolutions.has_parts(_variant(last)):
            return (*apart[:-1], *by_gradient(last))
        bare = without_bias(last)
        if bare is not None and self._unlike(bare[0], False) < self._unlike(last, True):
            return (*apart[:-1], *map(Piece, bare))
        return apart

    def _unlike(self, signature: Signature, bias: bool | None = None) -> tuple[float, float]:
        """Returns how much a convolution differs from the measured convolution that is most like
        it.

        Args:
            signature: The convolution.
            bias: True: compare only with measured convolutions that have a bias. False: only with
                those without. None: with all.

        Returns:
            `(words, distance)`. `words` is in how many words the names of their variants differ.
            `distance` is how far apart their sizes are, in doublings. Both are infinite if there is
            no convolution to compare with.
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
        """Returns the kernels and the temporary memory of a piece of a call if the device has no
        room for the workspace of a convolution.

        cuDNN then tries other algorithms, the ones without a workspace last. None of them is faster
        than the one that it chose first, so the kernels take at least as long as those with the
        workspace.
        """
        kernels, allocations = self._piece(signature)
        if signature.name not in convolutions.OPERATORS or not allocations:
            return kernels, allocations
        others, _ = self._piece(signature, bare=True)
        return _lasting(others, _total_ns(kernels)), ()

    def _piece(self, signature: Signature, *, bare: bool = False) -> _PieceCost:
        """Returns the kernels and the temporary memory of one piece of a call.

        Args:
            signature: The piece.
            bare: Whether to look only at measured calls without temporary memory.

        Returns:
            `(kernels, allocations)`. The piece works in passes, and frees its temporary memory at
            the end of each: the backward of a convolution has a pass for each gradient, for
            example. `allocations` has a tuple for each pass, with the bytes of each allocation.
        """
        name = signature.name.removeprefix("aten::")
        described = describe(signature)
        if described is None:
            return (Kernel(f"{name}_kernel", round(self._roofline.floor_ns), share=_LEAST),), ()
        family, shape = described
        dtype = shape.variants[0].partition(" ")[0]
        table = self._find(family, shape, bare)
        known = table is not None and (
            family.name != "elementwise" or _called(table.variant) == _called(shape.variants[0])
        )
        if not known and (_OF_LIBRARIES.match(name) or not elementwise.fits(signature)):
            raise NotImplementedError("no measured call resembles it")
        if table is None:
            total = self._roofline_for(family, dtype).ns(family.work(shape.variants[0], shape.dims), dtype)
            return (self._kernel(f"{name}_kernel", total),), ()
        in_tf32 = dtype == "ieee" and not table.variant.startswith(dtype)  # nothing like it was measured without
        dtype = "float32" if in_tf32 else dtype
        answer = table.ask(shape.dims, self._roofline_for(family, dtype), dtype)
        answer = self._read_once(signature, family, shape, answer)
        if family.name == "indexing":
            answer = replace(answer, total_ns=max(answer.total_ns, of_blocks_ns(shape, self._roofline.multiprocessors)))
        share = self._share(table, shape.dims, family, answer, dtype)
        kernels = self._kernels(answer, share, signature if family.name == "list" else None)
        kernels = self._with_blocks(kernels, family, table.variant, shape.dims)
        kernels = self._with_data(kernels, family.work(table.variant, shape.dims).moved)
        if not known and len(kernels) == 1:
            kernels = (
                replace(kernels[0], name=f"{name}_kernel", duration_ns=max(1, round(answer.total_ns)), module=-1),
            )
        temporaries = table.temporaries(shape.dims, answer, self._gpu.file.device.multiprocessors)
        if trusted(signature):
            kernels, temporaries = without_checks(kernels, temporaries)
        if name == "_embedding_bag_backward":
            kernels = sorted_in_one_tile(kernels, shape.dims[0])
        if family.name == "reduction" and answer.distance > 0:
            kernels, temporaries = self._cut(signature, shape, kernels, temporaries)
        if family.name == "attention":
            kernels = (*map(self._zeroing, attention.zeroed(signature)), *kernels)
        if knows_its_size(signature):
            kernels = tuple(kernel for kernel in kernels if "DtoH" not in kernel.name)
        if family.name == "convolution" and convolutions.lacks_bias_of(shape.variants[0], table.variant):
            kernels = convolutions.without_gradient_of_bias(kernels)
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
        if in_tf32:
            products = convolutions.products(signature)
            capability = _LAST_WITHOUT_TF32
            kernels = _lasting(kernels, sum(_total_ns(self._piece(product)[0]) for product in products))
        named = "float32" if dtype == "ieee" else dtype
        kernels = tuple(replace(each, name=name_on(capability, each.name, name, named)) for each in kernels)
        if family.name == "convolution":
            return kernels, tuple((size,) for size in temporaries)  # each gradient is a pass with one allocation
        return kernels, (temporaries,) if temporaries else ()

    def _read_once(self, signature: Signature, family: Family, shape: CallShape, answer: Estimate) -> Estimate:
        """Returns an estimate for a call of which several arguments have the same memory: kernels
        read such memory once. In measured calls, each argument has memory of its own.
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
        """Returns the share of the device's rate that a call uses, in thousandths: the rate at
        which it works, over the rate that the best measured calls of the same variant reach.
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
        """Returns the kernels with what the L2 cache means for them. Only a call of one kernel is
        changed.

        In measured calls, the L2 cache still holds the data of the call before. If it does not, a
        call takes at least as long as the memory needs to move its bytes.

        Args:
            kernels: The kernels of a call.
            size: How many bytes the call reads and writes.
        """
        if len(kernels) != 1:
            return kernels
        held = size / (HELD * self._roofline.l2_bytes)
        least = self._roofline.floor_ns + size / self._roofline.bytes_per_ns
        more = max(round(least) - kernels[0].duration_ns, 0) if held <= 1 else 0
        return (replace(kernels[0], cached=min(round(WHOLE * held), MOST), uncached_ns=more),)

    def host_work_ns(self, signature: Signature, threads: int) -> int:
        """Returns for how long an operator on CPU tensors computes, in ns.

        Args:
            signature: The call.
            threads: The number of threads that the program set; 0 if it set none.
        """
        return host_work_ns(signature, threads, self.host)

    def transfer(self, operation: Operation, size_bytes: int, ranks: int) -> Transfer:
        """Returns how NCCL runs an operation, and how long it takes once all ranks are ready. The
        arguments are those of `collectives.chosen_way`.
        """
        device = self._gpu.file.device
        return transfer(operation, size_bytes, self._gpu.links, device.capability, ranks)

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Returns how long a copy takes, in ns. The time is interpolated between measured sizes. A
        copy that is larger than all of them has the rate of the largest.

        Args:
            size_bytes: The size of the copy.
            direction: Its direction.
            pinned: Whether its host memory is pinned.
        """
        of = _DIRECTIONS.get(direction, "DtoD")
        rows = [
            (size, ns)
            for at, held, size, ns in self._gpu.file.copies
            if at == of and (held == pinned or of in ("DtoD", "PtoP"))
        ]
        return _between(size_bytes, rows or [(size, ns) for at, _, size, ns in self._gpu.file.copies if at == "DtoD"])

    def _find(self, family: Family, shape: CallShape, bare: bool = False) -> CostTable | None:
        """Returns the table of measured calls for the first name in `shape.variants` for which
        there is one, or None if there is none.

        Args:
            family: The family of the operator.
            shape: The shape of the call.
            bare: Whether the table has only calls without temporary memory.
        """
        tables = (self._table(family, variant, bare) for variant in shape.variants)
        return next((table for table in tables if table is not None), None)

    def _table(self, family: Family, variant: str, bare: bool) -> CostTable | None:
        key = (family.name, variant, bare)
        if key not in self._tables:
            calls = self._calls(family, variant)
            calls = [call for call in calls if not (bare and call.temporaries)]
            names = self._measured.file.kernels
            self._tables[key] = CostTable(family, variant, calls, self._measured_on, names) if calls else None
        return self._tables[key]

    def _calls(self, family: Family, variant: str) -> list[MeasuredCall]:
        """Returns the measured calls of a variant of a family. For a gradient of a convolution, the
        parts of backwards that compute several are among them.
        """
        file = self._measured.file
        table = file.tables.get(family.name, {}).get(variant)
        calls = of_rows(table, len(family.axes), file.sequences) if table else []
        for whole in convolutions.of_all_gradients(variant) if family.name == "convolution" else ():
            for call in self._calls(family, whole):
                measured = Measured(call.dims, tuple(file.kernels[name] for name in call.names), call.temporaries)
                for way, part, sizes in halves(whole, measured) or ():
                    if variant.split()[1] == f"backward-{way}":
                        calls.append(MeasuredCall(call.dims, call.names[part], call.ns[part], sizes))
        return list({call.dims: call for call in reversed(calls)}.values())

    def _kernels(self, answer: Estimate, share: int, of_lists: Signature | None) -> tuple[Kernel, ...]:
        """Returns the kernels of the measured call that is nearest to an estimate, scaled to the
        estimated time.

        Args:
            answer: The estimate.
            share: The share of the device that each kernel uses, in thousandths.
            of_lists: For an operator on lists of tensors, its call; else None. A launch can process
                only so many tensors, so each kernel is repeated until all are processed.
        """
        before = max(answer.nearest.total_ns, 1)
        if of_lists is None:
            parts = zip(answer.nearest.names, answer.nearest.ns, strict=True)
            return tuple(self._measured_kernel(number, ns / before * answer.total_ns, share) for number, ns in parts)
        together: dict[int, float] = {}
        for number, ns in zip(answer.nearest.names, answer.nearest.ns, strict=True):
            together[number] = together.get(number, 0.0) + ns / before * answer.total_ns
        sizes = sizes_of(of_lists)
        return tuple(
            self._measured_kernel(number, ns * part, share)
            for number, ns in together.items()
            for part in launches(self._measured.file.kernels[number], sizes) or [1.0]
        )

    def _measured_kernel(self, number: int, ns: float, share: int) -> Kernel:
        """Returns a kernel of the file by its number, with the time `ns`."""
        kernel = self._kernel(self._measured.file.kernels[number], ns, share)
        return replace(kernel, module=self._modules[number])

    def _kernel(self, name: str, ns: float, share: int = 1000) -> Kernel:
        """Returns a kernel that takes `ns`.

        Args:
            name: The name of the kernel. It is a memset or a copy if the name says so.
            ns: How long it takes, in ns.
            share: The share of the device that it uses, in thousandths. Not used for a memset or a
                copy, whose share follows from its time: the part in which it does more than an
                empty kernel.
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
        """Returns the kernels and the temporary memory of a reduction, given those of the measured
        reduction that is most like it. If several thread blocks share a result, the reduction
        begins with a memset of counters. The memset is added or removed if only one of the two
        reductions has it.

        Args:
            signature: The reduction.
            shape: Its shape.
            kernels: The kernels of the measured reduction.
            temporaries: The bytes of each temporary allocation of the measured reduction.
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
        """Returns the bytes of the workspaces that torch gives to a matrix product, by library:
        "cublas", and also "cublaslt" if the product adds a bias. Returns an empty dict for other
        calls.
        """
        name = signature.name.removeprefix("aten::")
        if name not in CUBLAS:
            return {}
        sizes = self._gpu.file.workspaces or self._measured.file.workspaces
        lt = name == "_addmm_activation" or (name == "addmm" and len(signature.tensors[0].sizes) == 1)
        return {key: size for key, size in sizes.items() if key != "cublaslt" or lt}


def costs_of(name: str) -> MeasuredCosts:
    """Returns the costs on a GPU. Raises UsageError if there is no such GPU.

    Args:
        name: The name of the GPU, or the path of its .json file.
    """
    gpu = gpu_named(name)
    return MeasuredCosts(gpu, gpu.measured)


def _between(size: int, rows: list[tuple[int, int]]) -> int:
    sizes, times = np.array(sorted(rows), float).T
    if size > sizes[-1]:
        return int(times[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, times)))
