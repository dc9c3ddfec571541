"""Reads which kernels a module of CUDA defines, and which of them can fail an assertion.

A module's machine code is a cubin, which is an ELF file. A kernel's assertion (`CUDA_KERNEL_ASSERT`, for example of an
index) calls a function of the driver. The section `.nv.callgraph` has the calls between functions: pairs of symbols,
caller and callee, of four bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unstall.blaming.core_dump.elf import Elf, are_functions, text
from unstall.errors import TraceError

_ASSERTION = "__assertfail"


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
        symbols, strings = next(elf.symbol_tables())
        graph = elf.named(".nv.callgraph")
    except (TraceError, StopIteration):  # damaged, or without symbols
        return Cubin(len(code))
    names = [text(strings, at) for at in symbols["name"].tolist()]
    defined = np.flatnonzero(are_functions(symbols) & (symbols["section"] != 0))
    functions = frozenset(names[symbol] for symbol in defined.tolist())
    calls = graph[: len(graph) // 8 * 8].view("<u4").reshape(-1, 2)
    return Cubin(len(code), functions, functions & _asserting(names, calls.tolist()))


def _asserting(names: Sequence[str], calls: Sequence[Sequence[int]]) -> set[str]:
    """Returns the names of the symbols from which a chain of calls leads to the failure of an assertion."""
    found = {symbol for symbol, name in enumerate(names) if name == _ASSERTION}
    while more := {caller for caller, callee in calls if callee in found} - found:
        found |= more
    return {names[symbol] for symbol in found if symbol < len(names)}
