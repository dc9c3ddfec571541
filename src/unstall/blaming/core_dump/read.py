"""Reads a GPU core dump. The file is untrusted, so the sizes in it are checked, and the files that it names are not
opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from unstall.blaming.core_dump import tables
from unstall.blaming.core_dump.code import Code
from unstall.blaming.core_dump.elf import Elf, text
from unstall.blaming.core_dump.exceptions import meaning
from unstall.blaming.core_dump.result import CoreDump, Device, DeviceException, Grid, Index, Instruction
from unstall.blaming.core_dump.tables import table
from unstall.blaming.demangle import demangled
from unstall.errors import TraceError

_CUDA, _CUDA_ABI, _CORE = 190, 0x33, 4
_MOST_GRIDS, _MOST_DEVICES, _MOST_PLACES = 256, 64, 4


def read_core_dump(path: Path) -> CoreDump:
    """Reads a core dump that CUDA's driver wrote.

    Raises:
        TraceError: The file is not a GPU core dump, or it is broken.
        OSError: The file cannot be read.
    """
    if not path.is_file():
        raise TraceError(f"{path}: no file")
    if not path.stat().st_size:
        raise TraceError(f"{path}: empty: the dump was not written to its end")
    elf = Elf(np.memmap(path, np.uint8, "r").view(np.ndarray), str(path))
    if (elf.machine, elf.abi, elf.kind) != (_CUDA, _CUDA_ABI, _CORE):
        raise TraceError(f"{path}: no core dump of a GPU")
    return _Reader(elf).read()


class _Reader:
    """Joins the tables of one core dump. Finds the warp, the block, the multiprocessor and the
    device of each thread.
    """

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._processors = table(elf, tables.PROCESSORS)
        self._blocks = table(elf, tables.BLOCKS, self._processors)
        self._warps = table(elf, tables.WARPS, self._blocks)
        self._threads = table(elf, tables.THREADS, self._warps)
        images = elf.filled(tables.MODULE_CODE)
        self._code = Code((elf.data(number), f"{elf.what}: section {number}") for number in images)

    def read(self) -> CoreDump:
        grids = list(self._grids())
        elsewhere = () if any(grid.exception for grid in grids) else tuple(self._of_processors())
        if len(grids) == 1 and len(elsewhere) == 1:
            grids, elsewhere = [msgspec.structs.replace(grids[0], exception=elsewhere[0])], ()
        meta = table(self._elf, tables.META).rows
        return CoreDump(
            file=self._elf.what,
            driver=f"{meta[0]['driver']}.{meta[0]['driver_minor']}" if len(meta) else "",
            cuda=f"{meta[0]['cuda']}.{meta[0]['cuda_minor']}" if len(meta) else "",
            written_s=int(meta[0]["written"]) if len(meta) else 0,
            devices=tuple(self._devices()),
            grids=tuple(sorted(grids, key=lambda grid: (grid.exception is None, grid.device, grid.number))),
            elsewhere=elsewhere,
        )

    def _devices(self) -> Iterator[Device]:
        strings = self._elf.named(".strtab")
        for row in table(self._elf, tables.DEVICES).rows[:_MOST_DEVICES]:
            name, architecture = (text(strings, int(row[field])) for field in ("name", "architecture"))
            yield Device(name=name, architecture=architecture, multiprocessors=int(row["multiprocessors"]))

    def _grids(self) -> Iterator[Grid]:
        found = table(self._elf, tables.GRIDS)
        if len(found.rows) > _MOST_GRIDS:
            raise TraceError(f"{self._elf.what}: it has {len(found.rows):,} grids; at most {_MOST_GRIDS} are read")
        of_block = self._processors.parent[self._blocks.parent]
        for row, device in zip(found.rows, found.parent, strict=True):
            blocks = (self._blocks.rows["grid"] == row["number"]) & (of_block == device)
            yield self._grid(row, int(device), blocks)

    def _grid(self, row: Any, device: int, blocks: NDArray[np.bool_]) -> Grid:
        kernel = self._code.function(int(row["entry"]))
        warps = blocks[self._warps.parent]
        threads = np.flatnonzero(warps[self._threads.parent])
        return Grid(
            kernel=demangled(kernel.linked) if kernel else "",
            linked=kernel.linked if kernel else "",
            number=int(row["number"]),
            device=device,
            blocks=_index(row, "grid_"),
            threads=_index(row, "block_"),
            resident_blocks=int(blocks.sum()),
            resident_warps=int(warps.sum()),
            multiprocessors=len(np.unique(self._blocks.parent[blocks])),
            exception=self._exception(threads),
            standing=self._most(self._pcs(threads)),
        )

    def _exception(self, threads: NDArray[np.intp]) -> DeviceException | None:
        """Returns the most frequent exception of the threads in `threads`; None if none of them had an exception."""
        codes = self._threads.rows["exception"][threads]
        if not codes.any():
            return None
        values, counts = np.unique(codes[codes > 0], return_counts=True)
        code = int(values[np.argmax(counts)])
        having = threads[codes == code]
        warps = np.unique(self._threads.parent[having])
        blocks = self._warps.parent[self._threads.parent[having]]
        block_rows, thread_rows = self._blocks.rows[blocks], self._threads.rows[having]
        first = np.lexsort([*(thread_rows[axis] for axis in "xyz"), *(block_rows[axis] for axis in "xyz")])[0]
        known = warps[self._warps.rows["knows_pc"][warps] > 0]
        pcs = self._warps.rows["pc"][known] if len(known) else self._pcs(having)
        return _exception(
            code,
            at=next(iter(self._most(pcs)), None),
            block=_index(block_rows[first]),
            thread=_index(thread_rows[first]),
            blocks=len(np.unique(blocks)),
            warps=len(warps),
            threads=len(having),
        )

    def _of_processors(self) -> Iterator[DeviceException]:
        """Yields the exceptions that only multiprocessors report, because the warps that caused them have ended."""
        rows = self._processors.rows
        for code in np.unique(rows["exception"][rows["exception"] > 0])[:_MOST_PLACES]:
            known = rows["pc"][(rows["exception"] == code) & (rows["knows_pc"] > 0)]
            yield _exception(int(code), at=next(iter(self._most(known)), None))

    def _pcs(self, threads: NDArray[np.intp]) -> NDArray[np.uint64]:
        """Returns one program counter per warp: the program counter of the warp's first thread in `threads`."""
        _, first = np.unique(self._threads.parent[threads], return_index=True)
        pcs: NDArray[np.uint64] = self._threads.rows["pc"][threads[first]]
        return pcs

    def _most(self, pcs: NDArray[np.uint64]) -> tuple[Instruction, ...]:
        """Returns the instructions at which the most warps were. The instruction with the most warps comes first.

        Args:
            pcs: One program counter per warp.
        """
        most = Counter(map(int, pcs)).most_common(_MOST_PLACES)
        found = ((self._code.function(address), address, warps) for address, warps in most)
        return tuple(function.instruction(address, warps) for function, address, warps in found if function)


def _exception(code: int, **facts: Any) -> DeviceException:
    known = meaning(code)
    return DeviceException(code=code, name=known.name, words=known.words, error=known.error, **facts)


def _index(row: Any, prefix: str = "") -> Index:
    return int(row[f"{prefix}x"]), int(row[f"{prefix}y"]), int(row[f"{prefix}z"])
