"""What operators, copies and memsets take on one GPU: its measured calls looked up, or another's scaled to it."""

from __future__ import annotations

import statistics
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unstall.timeline import CopyDirection, DeviceKind
from unstall.virtual.costs.families import Family, Shape, describe
from unstall.virtual.costs.families.lists import launches, sizes_of
from unstall.virtual.costs.model import DeviceFacts, HostCosts, Kernel, Limits, OperatorCost
from unstall.virtual.costs.no_kernel import runs_nothing
from unstall.virtual.costs.roofline import Roofline
from unstall.virtual.costs.signature import Signature
from unstall.virtual.costs.tables import Answer, Table, of_rows

if TYPE_CHECKING:
    from unstall.virtual.costs.gpu_file import Gpu, Peaks

_FILLS_NS = 3_000
"""A kernel that takes longer has more blocks than the device holds at once."""
_HANDLE = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "linear", "_addmm_activation")
_DIRECTIONS = {
    CopyDirection.HOST_TO_DEVICE: "HtoD",
    CopyDirection.DEVICE_TO_HOST: "DtoH",
    CopyDirection.DEVICE_TO_DEVICE: "DtoD",
    CopyDirection.PEER_TO_PEER: "PtoP",
}


class MeasuredCosts:
    """Costs on `gpu` by the tables of `measured`, which is the same one unless `gpu` is known from its data sheet
    alone.
    """

    def __init__(self, gpu: Gpu, measured: Gpu) -> None:
        self._gpu, self._measured = gpu, measured
        self._roofline = roofline_of(gpu.file.peaks, gpu.file.device.l2_bytes)
        self._measured_on = roofline_of(measured.file.peaks, measured.file.device.l2_bytes)
        self._tables: dict[tuple[str, str], Table | None] = {}

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
    def _usual_host_ns(self) -> int:
        """Of an operator whose own part was not measured."""
        known = self._measured.file.operators_host_ns.values()
        return round(statistics.median(known)) if known else 0

    @property
    def known_error(self) -> str:
        """How far off these costs were on programs whose times are known."""
        return self._gpu.file.known_error

    def cost(self, signature: Signature) -> OperatorCost:
        """Of one call. An operator that nothing like was measured of takes what its bytes do, in one kernel."""
        name = signature.name.removeprefix("aten::")
        if runs_nothing(signature):
            return OperatorCost(())
        host_ns = self._measured.file.operators_host_ns.get(name, self._usual_host_ns)
        described = describe(signature)
        if described is None:
            return OperatorCost((Kernel(f"{name}_kernel", round(self._roofline.floor_ns), fills=False),), host_ns)
        family, shape = described
        found = self._find(family, shape)
        if found is None:
            total = self._roofline.ns(*family.work(shape.variants[0], shape.dims), shape.variants[0].partition(" ")[0])
            return OperatorCost((self._kernel(f"{name}_kernel", total),), host_ns)
        table, exact = found
        answer = table.ask(shape.dims, self._roofline, shape.variants[0].partition(" ")[0])
        kernels = self._kernels(answer, signature if family.name == "list" else None)
        if not exact and len(kernels) == 1:
            kernels = (self._kernel(f"{name}_kernel", answer.total_ns),)
        return OperatorCost(kernels, host_ns, table.temporaries(shape.dims, answer), self._workspaces(signature, name))

    def copy_ns(self, size_bytes: int, direction: CopyDirection, pinned: bool) -> int:
        """Between the sizes that were measured, as on a line; beyond, at the largest one's rate."""
        of = _DIRECTIONS.get(direction, "DtoD")
        rows = [
            (size, ns)
            for at, held, size, ns in self._gpu.file.copies
            if at == of and (held == pinned or of in ("DtoD", "PtoP"))
        ]
        return _between(size_bytes, rows or [(size, ns) for at, _, size, ns in self._gpu.file.copies if at == "DtoD"])

    def memset_ns(self, size_bytes: int) -> int:
        return _between(size_bytes, self._gpu.file.memsets)

    def _find(self, family: Family, shape: Shape) -> tuple[Table, bool] | None:
        """The first of the shape's variants that was measured, and whether it is of this very operator."""
        for variant in shape.variants:
            table = self._table(family, variant)
            if table is not None:
                same = family.name != "elementwise" or variant.split()[1:2] == shape.variants[0].split()[1:2]
                return table, same
        return None

    def _table(self, family: Family, variant: str) -> Table | None:
        key = (family.name, variant)
        if key not in self._tables:
            rows = self._measured.file.tables.get(family.name, {}).get(variant)
            calls = of_rows(rows, len(family.axes), self._measured.file.sequences) if rows else None
            self._tables[key] = Table(family, variant, calls, self._measured_on) if calls else None
        return self._tables[key]

    def _kernels(self, answer: Answer, of_lists: Signature | None) -> tuple[Kernel, ...]:
        """The nearest call's, each with the same share of the whole; of lists, as many as these tensors need."""
        names = self._measured.file.kernels
        before = max(answer.nearest.total_ns, 1)
        if of_lists is None:
            parts = zip(answer.nearest.names, answer.nearest.ns, strict=True)
            return tuple(self._kernel(names[name], ns / before * answer.total_ns) for name, ns in parts)
        together: dict[int, float] = {}
        for name, ns in zip(answer.nearest.names, answer.nearest.ns, strict=True):
            together[name] = together.get(name, 0.0) + ns / before * answer.total_ns
        sizes = sizes_of(of_lists)
        return tuple(
            self._kernel(names[name], ns * share)
            for name, ns in together.items()
            for share in launches(names[name], sizes) or [1.0]
        )

    def _kernel(self, name: str, ns: float) -> Kernel:
        kind = DeviceKind.KERNEL
        if name.startswith("Mem"):
            kind = DeviceKind.MEMSET if name.startswith("Memset") else DeviceKind.COPY
        duration = max(1, round(ns))
        return Kernel(name, duration, kind, fills=duration >= _FILLS_NS)

    def _workspaces(self, signature: Signature, name: str) -> tuple[tuple[str, int], ...]:
        """cuBLAS has its own from its first product on; cuBLASLt, which adds a bias on the way, another."""
        if name not in _HANDLE:
            return ()
        sizes = self._gpu.file.workspaces or self._measured.file.workspaces
        lt = name == "_addmm_activation" or (name == "addmm" and len(signature.tensors[0].sizes) == 1)
        return tuple((key, size) for key, size in sizes.items() if key != "cublaslt" or lt)


def roofline_of(peaks: Peaks, l2_bytes: int) -> Roofline:
    return Roofline(peaks.float32, peaks.half, peaks.float64, peaks.bytes, l2_bytes, peaks.l2_bytes, peaks.floor_ns)


def _between(size: int, rows: list[tuple[int, int]]) -> int:
    sizes, times = np.array(sorted(rows), float).T
    if size > sizes[-1]:
        return int(times[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, times)))
