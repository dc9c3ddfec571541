"""Reads which kernels a module of CUDA defines, and which of them can fail an assertion.

A module's machine code is a cubin, which is an ELF file. A kernel's assertion (`CUDA_KERNEL_ASSERT`, for example of an
index) calls a function of the driver. The section `.nv.callgraph` has the calls between functions: pairs of symbols,
caller and callee, of four bytes each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unstall.blaming.core_dump.elf import SYMBOLS, Bytes, Elf, text
from unstall.errors import TraceError

_ASSERTION = "__assertfail"
_SYMBOL = np.dtype(
    [("name", "<u4"), ("kind", "u1"), ("visible", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION, _KIND = 2, 0xF  # STT_FUNC, and the bits of st_info that have it


class Cubin(NamedTuple):
    """What is known of a module from its machine code.

    Attributes:
        size_bytes: The size of the machine code.
        functions: The mangled names of the functions that it defines. Kernels are functions.
        asserting: Those that can fail an assertion, themselves or in functions that they call.
    """

    size_bytes: int
    functions: frozenset[str] = frozenset()
    asserting: frozenset[str] = frozenset()


def read_cubin(code: bytes) -> Cubin:
    """Reads the machine code of a module. Code that cannot be read defines no functions."""
    try:
        elf = Elf(np.frombuffer(code, np.uint8), "a module")
        names, defined = _symbols(elf)
        asserting = _asserting(names, elf.named(".nv.callgraph"))
    except TraceError:
        return Cubin(len(code))
    functions = frozenset(names[symbol] for symbol in defined)
    return Cubin(len(code), functions, functions & asserting)


def _symbols(elf: Elf) -> tuple[list[str], list[int]]:
    """Returns the names of the symbols, and the numbers of those that are functions with code in this file."""
    tables = elf.of_type(SYMBOLS)
    if not len(tables) or elf.sections["link"][tables[0]] >= len(elf.sections):
        return [], []
    strings = elf.data(int(elf.sections["link"][tables[0]]))
    symbols = _rows(elf.data(int(tables[0])), _SYMBOL)
    defined = np.flatnonzero((symbols["kind"] & _KIND == _FUNCTION) & (symbols["section"] != 0))
    return [text(strings, at) for at in symbols["name"].tolist()], defined.tolist()


def _asserting(names: list[str], graph: Bytes) -> set[str]:
    """Returns the names of the symbols from which a call chain leads to the failure of an assertion."""
    found = {symbol for symbol, name in enumerate(names) if name == _ASSERTION}
    calls: list[list[int]] = _rows(graph, np.dtype(("<u4", 2))).tolist()
    while more := {caller for caller, callee in calls if callee in found} - found:
        found |= more
    return {names[symbol] for symbol in found if symbol < len(names)}


def _rows(data: Bytes, row: np.dtype) -> np.ndarray:
    whole = len(data) // row.itemsize * row.itemsize
    return np.frombuffer(data[:whole].tobytes(), row)
