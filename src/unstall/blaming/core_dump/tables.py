"""Reads the tables of a core dump. Their rows have the format of NVIDIA's cudacoredump.h.

Newer drivers write longer rows, which begin with the fields listed here. Older drivers write
shorter rows; a field that is missing in a row is read as 0. All sections of one type are read as
one table. The rows of a section belong to a parent, which is a row of another section. The header
field `link` of a section is the number of the parent's section. The header field `info` is the
index of the parent in that section.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.blaming.core_dump.elf import Bytes, Elf
from unstall.errors import TraceError

_FIRST_TYPE = 0x80000000
MODULE_CODE, CALLERS, DEVICES, CONTEXTS, PROCESSORS, GRIDS, BLOCKS, WARPS, THREADS, MODULES = range(
    _FIRST_TYPE + 7, _FIRST_TYPE + 17
)
META = _FIRST_TYPE + 22
_INDEX = ("x", "y", "z")


def _fields(*parts: tuple[str, Sequence[str]]) -> np.dtype[Any]:
    return np.dtype([(name, kind) for kind, names in parts for name in names])


_ROWS: dict[int, tuple[np.dtype[Any], str]] = {  # the fields that are read, and the last that every driver has
    DEVICES: (
        _fields(
            ("<u8", ("name", "type", "architecture")),
            ("<u4", ("id", "bus", "pci", "multiprocessors")),
        ),
        "multiprocessors",
    ),
    PROCESSORS: (_fields(("<u4", ("id", "spare", "exception", "knows_pc")), ("<u8", ("pc",))), "spare"),
    GRIDS: (
        _fields(
            ("<u8", ("number", "context", "function", "entry", "module", "parent", "parameters")),
            ("<u4", ("type", "origin", "status", "registers")),
            ("<u4", (*(f"grid_{i}" for i in _INDEX), *(f"block_{i}" for i in _INDEX))),
        ),
        "block_z",
    ),
    BLOCKS: (_fields(("<u8", ("grid",)), ("<u4", _INDEX)), "z"),
    WARPS: (
        _fields(("<u8", ("pc",)), ("<u4", ("id", "valid", "active", "broken", "knows_pc", "spare"))),
        "spare",
    ),
    THREADS: (_fields(("<u8", ("pc", "offset")), ("<u4", ("lane", *_INDEX, "exception"))), "exception"),
    META: (
        _fields(("<u8", ("generator",)), ("<u4", ("driver", "driver_minor", "cuda", "cuda_minor", "flags", "written"))),
        "written",
    ),
}


@dataclass(frozen=True)
class Table:
    """The rows of all sections of one type in a core dump. A row may belong to a parent: a row of
    another table.

    Attributes:
        rows: The rows.
        parent: For each row, the index of its parent in the other table.
        first_row: Maps the number of a section to the index of its first row in `rows`.
        counts: Maps the number of a section to the number of its rows.
    """

    rows: NDArray[Any]
    parent: NDArray[np.intp]
    first_row: dict[int, int]
    counts: dict[int, int]


def table(elf: Elf, kind: int, parent: Table | None = None) -> Table:
    """Reads all sections of one type as one table.

    Args:
        elf: The core dump.
        kind: The ELF type (sh_type) of the sections.
        parent: The table that contains the parents of the rows. If it is None, `Table.parent` of
            the result has the header field `info` of each row's section instead.

    Raises:
        TraceError: The end of a section is missing, a section has rows of a wrong size, or a
            section belongs to a row that does not exist.
    """
    dtype, last = _ROWS[kind]
    assert dtype.fields is not None
    least = dtype.fields[last][1] + dtype[last].itemsize
    pieces = [np.zeros((0, dtype.itemsize), np.uint8)]
    parents: list[NDArray[np.intp]] = [np.zeros(0, np.intp)]
    first_row, counts, total = {}, {}, 0
    for number in elf.filled(kind):
        section = elf.sections[number]
        rows = _rows(elf, number, dtype.itemsize, least)
        link, info = int(section["link"]), int(section["info"])
        if parent is not None and info >= parent.counts.get(link, 0):
            raise TraceError(f"{elf.what}: section {number} belongs to nothing")
        of = info if parent is None else parent.first_row[link] + info
        first_row[number], counts[number] = total, len(rows)
        total += len(rows)
        pieces.append(rows)
        parents.append(np.full(len(rows), of, np.intp))
    rows = np.concatenate(pieces).view(dtype)[:, 0]
    return Table(rows, np.concatenate(parents), first_row, counts)


def _rows(elf: Elf, number: int, wanted_bytes: int, least_bytes: int) -> Bytes:
    """Returns the first `wanted_bytes` bytes of each row of a section. Pads shorter rows with zeros."""
    data = elf.data(number)
    row_bytes = int(elf.sections[number]["row_bytes"]) or len(data)
    if row_bytes < least_bytes or len(data) % row_bytes:
        raise TraceError(f"{elf.what}: section {number} has rows of {row_bytes} bytes, not of {least_bytes} or more")
    rows = data.reshape(-1, row_bytes)[:, :wanted_bytes]
    return rows if row_bytes >= wanted_bytes else np.pad(rows, ((0, 0), (0, wanted_bytes - row_bytes)))
