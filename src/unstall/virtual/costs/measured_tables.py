"""The calls that were measured on a GPU, as tables that are asked for similar calls."""

from __future__ import annotations

from unstall.virtual.costs.families import CallShape, Family
from unstall.virtual.costs.families.family import HALVES
from unstall.virtual.costs.gpu_file import Gpu
from unstall.virtual.costs.roofline import Roofline
from unstall.virtual.costs.tables import CostTable, MeasuredCall, of_rows


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
        """Returns the measured calls of a variant of a family. Among those of a data type of 16 bits are those of the
        other: its kernels move as many bytes, and libraries have as fast ones for both. With each call left out in
        turn, times in float16 are off by 6 to 15 %, and by 7 to 19 without this.
        """
        calls = self._of_type(family, variant)
        dtype, _, rest = variant.partition(" ")
        if dtype not in HALVES:
            return calls
        calls = [*calls, *self._of_type(family, f"{HALVES[dtype]} {rest}")]
        return list({call.dims: call for call in reversed(calls)}.values())

    def _of_type(self, family: Family, variant: str) -> list[MeasuredCall]:
        table = self._file.tables.get(family.name, {}).get(variant)
        return of_rows(table, len(family.axes), self._file.sequences) if table else []
