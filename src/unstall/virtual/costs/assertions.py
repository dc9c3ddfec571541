"""Reads which kernels of a module can fail an assertion, from the module's machine code, which is an ELF file.

A kernel's assertion (`CUDA_KERNEL_ASSERT`, for example of an index) calls a function of the driver. The section
`.nv.callgraph` has the calls between functions: pairs of symbols, caller and callee, of four bytes each.
"""

from __future__ import annotations

import numpy as np

from unstall.blaming.core_dump.elf import SYMBOLS, Elf, text
from unstall.errors import TraceError

_ASSERTION = "__assertfail"
_SYMBOL_BYTES = 24
_NAME = slice(0, 4)  # the offset of a symbol's name, in the symbol


def asserting(code: bytes) -> set[str]:
    """Returns the mangled names of the functions that can fail an assertion, themselves or in functions that they call.

    Args:
        code: The machine code of a module. If it cannot be read, it has no such functions.
    """
    if _ASSERTION.encode() not in code:
        return set()
    try:
        names, calls = _calls(Elf(np.frombuffer(code, np.uint8), "a module"))
    except TraceError:
        return set()
    found = {symbol for symbol, name in enumerate(names) if name == _ASSERTION}
    while more := {caller for caller, callee in calls if callee in found} - found:
        found |= more
    return {names[symbol] for symbol in found if symbol < len(names)} - {_ASSERTION}


def _calls(elf: Elf) -> tuple[list[str], list[tuple[int, int]]]:
    """Returns the names of the symbols, and the calls between them, as the symbols' numbers."""
    tables = elf.of_type(SYMBOLS)
    if not len(tables) or elf.sections["link"][tables[0]] >= len(elf.sections):
        return [], []
    symbols, strings = elf.data(int(tables[0])), elf.data(int(elf.sections["link"][tables[0]]))
    rows = symbols[: len(symbols) // _SYMBOL_BYTES * _SYMBOL_BYTES].reshape(-1, _SYMBOL_BYTES)
    names = [text(strings, at) for at in np.ascontiguousarray(rows[:, _NAME]).view("<u4")[:, 0].tolist()]
    graph = elf.named(".nv.callgraph")
    pairs = np.ascontiguousarray(graph[: len(graph) // 8 * 8]).view("<u4").reshape(-1, 2)
    return names, [(caller, callee) for caller, callee in pairs.tolist()]
