"""Predicts the kernels and the temporary memory of a call from measured calls."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from unstall.replay.program import LOST, WHOLE
from unstall.timeline.columns import DeviceKind
from unstall.virtual.costs.families import CallShape, Family, convolutions, describe, elementwise
from unstall.virtual.costs.families.conv_kernels import turns
from unstall.virtual.costs.families.family import Found, Target
from unstall.virtual.costs.families.lists import launches, sizes_of
from unstall.virtual.costs.gpu_file import Gpu
from unstall.virtual.costs.kernel_names import in_half, name_on, needed_capability
from unstall.virtual.costs.measured_tables import MeasuredTables
from unstall.virtual.costs.model import HOST_WAIT, Kernel
from unstall.virtual.costs.occupancy import MOST, UNKNOWN, Launch, threads_on, with_blocks
from unstall.virtual.costs.roofline import Roofline, roofline_of
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import CostTable, Estimate, MeasuredCall, weighted

OF_LIBRARIES = re.compile(r"_?(linalg_(?!vector_norm)|fft_|cholesky|triangular_solve|ormqr|geqrf|lu_)")
"""Matches the operators of cuSOLVER and cuFFT. Their time does not follow from the bytes that they move."""
_LEAST = 10
"""The share of the device, in thousandths, that a kernel uses at least."""
_LITTLE = 100
"""A share of the device that is as good as none, in thousandths."""
_MOST_AGAIN = 10_000
_OF_MANY_GRAPHS_NS = 100
"""How much longer pauses between kernels of a graph are once the process has captured many graphs. On an H200, a sum of
up to 1,024 numbers then takes 1.16 to 1.18 us in a loop, and 0.90 us alone. With few graphs, the pause is 0.16 us.
"""
_OF_PRODUCTS = ("product", "convolution", "attention")
"""The families of operators that multiply matrices. Kernels of all others move memory."""
_LAST_WITHOUT_TF32 = (7, 5)
PieceCost: TypeAlias = tuple[tuple[Kernel, ...], tuple[tuple[int, ...], ...]]


class Predictor:
    """Predicts the kernels of a call, and the memory that it allocates, on one GPU.

    Args:
        gpu: The GPU.
        measured: The GPU on which calls were measured. It may be the same.

    Attributes:
        roofline: The roofline of the GPU.
        tables: The measured calls.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self.roofline, self._measured_on = (
            roofline_of(each.file.peaks, each.file.device.l2_bytes, each.file.device.multiprocessors)
            for each in (gpu, measured)
        )
        self.tables = MeasuredTables(measured, self._measured_on)
        self._loops: dict[tuple[str, str, tuple[int, ...]], tuple[float, float, float]] = {}
        self._there: Predictor = self if gpu is measured else Predictor(measured, measured)
        device = gpu.file.device
        self._target = Target(device.multiprocessors, threads_on(device.capability), self.zeroing)

    def cost(self, signature: Signature, *, bare: bool = False) -> PieceCost:
        """Returns the kernels and the temporary memory of a call that CUDA runs in one piece.

        Args:
            signature: The call.
            bare: Whether to look only at measured calls without temporary memory.

        Returns:
            `(kernels, allocations)`. The call works in passes, and frees its temporary memory at
            the end of each: the backward of a convolution has a pass for each gradient, for
            example. `allocations` has a tuple for each pass, with the bytes of each allocation.

        Raises:
            NotImplementedError: No call like it was measured, and it is not element-wise, or belongs to cuSOLVER or
                cuFFT.
        """
        name = signature.name.removeprefix("aten::")
        described = describe(signature)
        if described is None:
            return (Kernel(f"{name}_kernel", round(self.roofline.floor_ns), share=_LEAST),), ()
        family, shape = described
        table = self.tables.find(family, shape, bare)
        known = table is not None and (
            family.name != "elementwise" or _called(table.variant) == _called(shape.variants[0])
        )
        if not known and (OF_LIBRARIES.match(name) or not elementwise.fits(signature)):
            raise NotImplementedError("no measured call resembles it")
        dtype = shape.variants[0].partition(" ")[0]
        if table is None:
            total = self._roofline_for(family, dtype).ns(family.work(shape.variants[0], shape.dims), dtype)
            return (self.kernel(f"{name}_kernel", total),), ()
        without_tf32 = dtype == "ieee" and not table.variant.startswith(dtype)  # nothing like it was measured
        dtype = "float32" if without_tf32 else dtype
        answer = self._estimate(signature, family, shape, table, dtype)
        found = self._found(signature, family, shape, table, answer, dtype)
        kernels = found.kernels
        if not known and len(kernels) == 1:
            kernels = (
                replace(kernels[0], name=f"{name}_kernel", duration_ns=max(1, round(answer.total_ns)), module=-1),
            )
        if half := _half_in(shape.variants[0]):
            kernels = tuple(replace(each, name=in_half(each.name, half)) for each in kernels)
        passes = [(size,) for size in found.temporaries] if family.frees_each else [found.temporaries]
        allocations = tuple(sizes for sizes in passes if sizes)
        if dtype == "tf32" and not table.variant.startswith("tf32"):
            ieee, _ = self.cost(replace(signature, precision="ieee"))  # cuBLAS may, but need not, round to TF32
            longest = max(kernels, key=lambda kernel: kernel.duration_ns)
            tf32 = replace(longest, name=f"{name}_tf32_kernel", duration_ns=max(1, round(answer.total_ns)))
            return min((tf32,), ieee, key=total_ns), allocations
        capability = self._gpu.file.device.capability
        if without_tf32:
            capability = min(capability, _LAST_WITHOUT_TF32)
        named = "float32" if dtype == "ieee" else dtype
        if family.name == "convolution" and named == "float32" and capability <= _LAST_WITHOUT_TF32:
            # Without tensor cores, cuDNN multiplies in the layout that it is given. Its own kernels for such a GPU use
            # as much of it as cuBLAS's do, while those that stand in for them on an H200 use about half of it.
            others = tuple(each for each in kernels if not turns(each.name)) or kernels
            is_own = all(needed_capability(each.name) <= capability for each in others)
            products = () if is_own else convolutions.products(signature)
            kernels = _taking(others, sum(total_ns(self.cost(each)[0]) for each in products) or total_ns(kernels))
        return tuple(replace(each, name=name_on(capability, each.name, name, named)) for each in kernels), allocations

    def _estimate(
        self, signature: Signature, family: Family, shape: CallShape, table: CostTable, dtype: str
    ) -> Estimate:
        answer = table.ask(shape.dims, self._roofline_for(family, dtype), dtype)
        answer = replace(answer, total_ns=max(answer.total_ns, self._fastest_ns(family, table, shape.dims, dtype)))
        answer = self._read_once(signature, family, shape, answer)
        if family.least_ns is None:
            return answer
        least = family.least_ns(shape, self.roofline.multiprocessors)
        if least > self.roofline.ns(family.work(shape.variants[0], shape.dims), dtype):
            return replace(answer, total_ns=least)  # thread blocks take it, not the bytes
        return replace(answer, total_ns=max(answer.total_ns, least))

    def _fastest_ns(self, family: Family, table: CostTable, dims: tuple[int, ...], dtype: str) -> float:
        """Returns a time in ns that a call takes at least, because memory is no faster. It is 0 for families of
        operators whose calls may move fewer bytes than is known.
        """
        return self.roofline.fastest_ns(table.work(dims, dtype)) if family.name == "elementwise" else 0.0

    def _found(
        self, signature: Signature, family: Family, shape: CallShape, table: CostTable, answer: Estimate, dtype: str
    ) -> Found:
        """Returns what the measured call that is most like a call launched and allocated, changed by how the two
        calls differ.
        """
        like = table.launched_like(shape.dims, answer.nearest)
        grown = family.work(table.variant, shape.dims).moved / max(family.work(table.variant, like.dims).moved, 1.0)
        of_lists = signature if family.name == "list" else None
        blocks = [count * grown for count in like.blocks]
        kernels = self._launched(family, table, shape.dims, answer, dtype, blocks, of_lists)
        kernels = self._with_repeats(kernels, family, table, shape.dims, dtype)
        kernels = self._with_data(kernels, table.work(shape.dims, dtype).moved)
        temporaries = table.temporaries(shape.dims, answer, self.roofline.multiprocessors)
        found = Found(table.variant, answer.distance == 0, kernels, temporaries)
        return family.adapt(signature, shape, found, self._target) if family.adapt else found

    def _roofline_for(self, family: Family, dtype: str) -> Roofline:
        """Returns the roofline of the GPU for the calls of a family of operators in one data type.

        Two cases have rates of their own. Before Ampere, tensor cores multiply neither in bfloat16
        nor in TF32. And convolutions in float32 were measured in TF32, which cuDNN uses by default,
        so their times are scaled by the rates for TF32.
        """
        own = self.roofline
        if dtype == "bfloat16" and not multiplies_in_tf32(self._gpu):
            return replace(own, half_flops_per_ns=own.flops_per_ns)
        if family.name == "convolution" and dtype == "float32":
            ratio = _tf32_rate(self._gpu, own) / _tf32_rate(self._measured, self._measured_on)
            return replace(own, flops_per_ns=self._measured_on.flops_per_ns * ratio)
        return own

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

    def _rate(self, table: CostTable, dims: tuple[int, ...], family: Family, answer: Estimate, dtype: str) -> int:
        """Returns the rate of a call, in thousandths of the device's: the rate at
        which it works, over the rate that the best measured calls of the same variant reach.
        """
        rate = table.ideal_ns(dims, self._roofline_for(family, dtype), dtype) / max(answer.total_ns, 1.0)
        return max(round(1000 * min(rate, 1.0)), _LEAST)

    def _with_blocks(
        self, kernels: tuple[Kernel, ...], family: Family, variant: str, dims: tuple[int, ...], launched: list[Launch]
    ) -> tuple[Kernel, ...]:
        device = self._gpu.file.device
        return with_blocks(
            kernels,
            partial(family.blocks, variant, dims) if family.blocks else lambda name: 0,
            launched,
            device.capability,
            device.multiprocessors,
            self.roofline.floor_ns,
            family.name in _OF_PRODUCTS,
        )

    def _launched(
        self,
        family: Family,
        table: CostTable,
        dims: tuple[int, ...],
        answer: Estimate,
        dtype: str,
        blocks: Sequence[float],
        of_lists: Signature | None = None,
    ) -> tuple[Kernel, ...]:
        """Returns the kernels of a call with their thread blocks, and with the share of the device that the rule tells.

        Args:
            family: The family of its operator.
            table: The measured calls like it.
            dims: Its value on each axis of the family.
            answer: Its estimate.
            dtype: Its data type.
            blocks: The number of thread blocks of each kernel; empty if it is unknown.
            of_lists: For an operator on lists of tensors, its call; else None.
        """
        rate = self._rate(table, dims, family, answer, dtype)
        kernels, launched = self._kernels(answer, rate, blocks, of_lists)
        return self._with_blocks(kernels, family, table.variant, dims, launched)

    def _with_repeats(
        self, kernels: tuple[Kernel, ...], family: Family, table: CostTable, dims: tuple[int, ...], dtype: str
    ) -> tuple[Kernel, ...]:
        """Returns the kernels of a call with what they take if they are repeated, and with their share of the device.
        Both come from calls like it that were measured in loops. If the rule tells another share for this call than
        for those, half of the difference counts (of the logarithms): with each of 18,826 calls left out in turn, the
        fewest were off like that.
        """
        near = table.repeated(dims, self.roofline, dtype)
        if not near:
            return kernels
        factors = np.array([factor for _, factor in near])
        logs = np.array([self._in_loops(family, table, call, dtype) for call, _ in near])
        longer, measured, ruled = (math.exp(weighted(column, factors)) for column in logs.T)
        fastest = self._fastest_ns(family, table, dims, dtype)
        longer = max(longer, min(fastest / max(total_ns(kernels), 1), 1.0))  # it moves less if it reads a tensor twice
        again = min(max(round(WHOLE * longer), 1), _MOST_AGAIN)
        return tuple(
            replace(each, again=again, share=min(max(round(measured * math.sqrt(each.share / ruled)), _LEAST), WHOLE))
            if each.kind is DeviceKind.KERNEL
            else each
            for each in kernels
        )

    def _in_loops(self, family: Family, table: CostTable, call: MeasuredCall, dtype: str) -> tuple[float, float, float]:
        """Returns the logarithms of how much longer a call that was measured in loops takes again, and of its share of
        the device, as measured and by rule.
        """
        key = (table.variant, dtype, call.dims)
        if key not in self._loops:
            loop_ns, together = call.repeats
            again = math.log(max(loop_ns - self._pauses_ns(call), 1) / max(call.total_ns, 1))
            alone = Estimate(call.total_ns, call, 0.0)
            ruled = _mean_share(self._there._launched(family, table, call.dims, alone, dtype, call.blocks))
            measured = min(max(together - WHOLE, _LITTLE), WHOLE)
            self._loops[key] = again, math.log(measured), math.log(max(ruled, _LITTLE))
        return self._loops[key]

    def _pauses_ns(self, call: MeasuredCall) -> int:
        """Returns how long the pauses before the kernels of a call were when it was measured in a loop, in ns: those of
        graphs (see `captures.Capture.finish`), and what they are longer in a process that captured many.
        """
        limits, names = self._measured.limits, [self._measured.file.kernels[name] for name in call.names]
        after = [names[at - 1].startswith("Memset") for at in range(len(names))]
        return sum(_OF_MANY_GRAPHS_NS + (limits.gap if memset else limits.graph_gap) for memset in after)

    def _with_data(self, kernels: tuple[Kernel, ...], size: float) -> tuple[Kernel, ...]:
        """Returns the kernels with what the L2 cache means for them. How much longer they take if it does not hold
        their data is known for a call of one kernel only.

        In measured calls, the L2 cache still holds the data of the call before. If it does not, a
        call takes at least as long as the memory needs to move its bytes.

        Args:
            kernels: The kernels of a call.
            size: How many bytes the call reads and writes.
        """
        used = round(WHOLE * size / self.roofline.l2_bytes)
        least = self.roofline.floor_ns + size / self.roofline.bytes_per_ns
        is_known = len(kernels) == 1 and used < LOST
        return tuple(
            replace(
                each,
                cached=min(used, MOST),
                uncached_ns=max(round(least) - each.duration_ns, 0) if is_known else 0,
            )
            for each in kernels
        )

    def _kernels(
        self, answer: Estimate, rate: int, blocks: Sequence[float], of_lists: Signature | None
    ) -> tuple[tuple[Kernel, ...], list[Launch]]:
        """Returns the kernels of the measured call that is nearest to an estimate, scaled to the
        estimated time, and how each of them is launched.

        Args:
            answer: The estimate.
            rate: The rate of each kernel, in thousandths of the device's; it is their share for now.
            blocks: The number of thread blocks of each kernel of that call; empty if it is unknown.
            of_lists: For an operator on lists of tensors, its call; else None. A launch can process
                only so many tensors, so each kernel is repeated until all are processed.
        """
        file, nearest = self._measured.file, answer.nearest
        before = max(nearest.total_ns, 1)
        parts = [
            (number, ns / before * answer.total_ns, count)
            for number, ns, count in zip(nearest.names, nearest.ns, blocks or [0.0] * len(nearest.names), strict=True)
        ]
        if of_lists is not None:
            together: dict[int, tuple[float, float]] = {}
            for number, ns, count in parts:
                ns_of, count_of = together.get(number, (0.0, 0.0))
                together[number] = ns_of + ns, count_of + count
            sizes = sizes_of(of_lists)
            parts = [
                (number, ns * part, count * part)
                for number, (ns, count) in together.items()
                for part in launches(file.kernels[number], sizes) or [1.0]
            ]
        launched = [
            Launch(math.ceil(count), file.kernel_blocks[number] if file.kernel_blocks else UNKNOWN)
            for number, _, count in parts
        ]
        return tuple(self._measured_kernel(number, ns, rate) for number, ns, _ in parts), launched

    def _measured_kernel(self, number: int, ns: float, share: int) -> Kernel:
        """Returns a kernel of the file by its number, with the time `ns`."""
        kernel = self.kernel(self._measured.file.kernels[number], ns, share)
        modules = self._measured.file.kernel_modules
        if not modules or self._measured.startup is not self._gpu.startup:
            return kernel
        return replace(kernel, module=modules[number])

    def kernel(self, name: str, ns: float, share: int = 1000) -> Kernel:
        """Returns a kernel that takes `ns`.

        Args:
            name: The name of the kernel. It is a memset or a copy if the name says so.
            ns: How long it takes, in ns.
            share: The share of the device that it uses, in thousandths. Not used for a memset or a
                copy, whose share follows from its time: the part in which it does more than an
                empty kernel.
        """
        if name == HOST_WAIT:
            return Kernel(name, 0, share=_LEAST)
        kind = DeviceKind.KERNEL
        if name.startswith("Mem"):
            kind = DeviceKind.MEMSET if name.startswith("Memset") else DeviceKind.COPY
            share = max(round(1000 * (1 - self.roofline.floor_ns / max(ns, 1.0))), _LEAST)
        duration = max(1, round(ns))
        return Kernel(name, duration, kind, share)

    def zeroing(self, size_bytes: int) -> Kernel:
        return self.kernel("Memset (Device)", interpolated(size_bytes, self._gpu.file.memsets))


def multiplies_in_tf32(gpu: Gpu) -> bool:
    return tuple(gpu.file.device.capability) >= (8, 0)


def _tf32_rate(gpu: Gpu, roofline: Roofline) -> float:
    return roofline.tf32_flops_per_ns if multiplies_in_tf32(gpu) else roofline.flops_per_ns


def _mean_share(kernels: tuple[Kernel, ...]) -> float:
    """Returns the share of the device that kernels use, in thousandths, weighted by their times."""
    return sum(each.share * each.duration_ns for each in kernels) / max(total_ns(kernels), 1)


def total_ns(kernels: tuple[Kernel, ...]) -> int:
    return sum(kernel.duration_ns for kernel in kernels)


def lasting(kernels: tuple[Kernel, ...], least_ns: int) -> tuple[Kernel, ...]:
    """Returns kernels with at least `least_ns` in total. If they take less, all of them are
    lengthened by the same factor.
    """
    return _taking(kernels, max(total_ns(kernels), least_ns))


def _taking(kernels: tuple[Kernel, ...], ns: int) -> tuple[Kernel, ...]:
    """Returns kernels that take `ns` in total: all are shortened or lengthened by the same factor."""
    scale = ns / total_ns(kernels)
    return tuple(replace(kernel, duration_ns=round(kernel.duration_ns * scale)) for kernel in kernels)


def _half_in(variant: str) -> str:
    """Returns the data type of 16 bits that a variant names; "" if it names none."""
    return "bfloat16" if "bfloat16" in variant else "float16" if "float16" in variant else ""


def _called(variant: str) -> str:
    """Returns the name of the operator in a variant of element-wise calls, without the overload:
    "add" for "float32 add.Tensor ==".
    """
    return " ".join(variant.split()[1:2]).partition(".")[0]


def interpolated(size: int, rows: list[tuple[int, int]]) -> int:
    sizes, times = np.array(sorted(rows), float).T
    if size > sizes[-1]:
        return int(times[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, times)))
