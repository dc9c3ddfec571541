"""The calls that were measured on a GPU, as tables that are asked for similar calls."""

from __future__ import annotations

from unstall.virtual.costs.families import CallShape, Family, convolutions
from unstall.virtual.costs.families.conv_kernels import halves
from unstall.virtual.costs.families.family import HALVES, Measured
from unstall.virtual.costs.gpu_file import Gpu
from unstall.virtual.costs.roofline import Roofline
from unstall.virtual.costs.tables import CostTable, MeasuredCall, of_rows

ALIKE_IN_HALF = ("convolution", "product")
"""The families of operators whose libraries have as fast kernels for both data types of 16 bits."""


class MeasuredTables:
    """The measured calls of a GPU's file. A table is made when it is first asked for.

    Args:
        gpu: The GPU on which the calls were measured.
        roofline: Its roofline.
    """

    def __init__(self, gpu: Gpu, roofline: Roofline) -> None:
        self._file, self._roofline = gpu.file, roofline
        self._tables: dict[tuple[str, str, bool], CostTable | None] = {}

    def find(self, family: Family, shape: CallShape, bare: bool = False) -> CostTable | None:
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
            calls = [call for call in self._calls(family, variant) if not (bare and call.temporaries)]
            self._tables[key] = CostTable(family, variant, calls, self._roofline, self._file.kernels) if calls else None
        return self._tables[key]

    def _calls(self, family: Family, variant: str) -> list[MeasuredCall]:
        """Returns the measured calls of a variant of a family. Among those of a convolution or a product are those of
        the other data type of 16 bits: cuDNN and cuBLAS have as fast kernels for both. Among those of a gradient are
        the parts of backwards that compute several.
        """
        calls = self._of_type(family, variant)
        dtype, _, rest = variant.partition(" ")
        if dtype in HALVES and family.name in ALIKE_IN_HALF:
            calls = [*calls, *self._of_type(family, f"{HALVES[dtype]} {rest}")]
        for whole in convolutions.of_all_gradients(variant):
            for call in self._calls(family, whole):
                measured = Measured(call.dims, tuple(self._file.kernels[name] for name in call.names), call.temporaries)
                for way, part, sizes in halves(whole, measured) or ():
                    if variant.split()[1] == f"backward-{way}":
                        calls.append(MeasuredCall(call.dims, call.names[part], call.ns[part], sizes))
        return list({call.dims: call for call in reversed(calls)}.values())

    def _of_type(self, family: Family, variant: str) -> list[MeasuredCall]:
        table = self._file.tables.get(family.name, {}).get(variant)
        return of_rows(table, len(family.axes), self._file.sequences) if table else []
