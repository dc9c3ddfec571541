"""Finds the GPU function and the source line that belong to an address in machine code on the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.blaming.core_dump.elf import SYMBOL, Bytes, Elf, are_functions, text
from unstall.blaming.core_dump.line_table import LineTable, Steps
from unstall.blaming.core_dump.result import Instruction
from unstall.blaming.demangle import demangled
from unstall.errors import TraceError

_LONGEST_TABLE = 1 << 28


@dataclass(frozen=True)
class Function:
    """A GPU function that was loaded on the device.

    Attributes:
        module: The module that contains the function's machine code.
        linked: The function's linker symbol.
        at: The function's first address on the device.
    """

    module: Module
    linked: str
    at: int

    def instruction(self, address: int, warps: int = 0) -> Instruction:
        """Returns the instruction at an address.

        Args:
            address: An address of the device, in the machine code of this function.
            warps: How many warps were at this address. The result's field `warps` has the same
                number.
        """
        source = self.module.lines.lines_at(self.at, address)
        name, offset = demangled(self.linked), address - self.at
        return Instruction(function=name, offset=offset, address=address, source=source, warps=warps)


class Module:
    """A module of machine code, as it was loaded on the device. All addresses are addresses on the device."""

    def __init__(self, content: Bytes, what: str, steps: Steps) -> None:
        self._elf, self._steps = Elf(content, what), steps

    def functions(self) -> Iterator[tuple[NDArray[Any], Bytes]]:
        """Yields `(symbols, strings)` for each symbol table of the module. `symbols` are the
        table's rows for functions that were loaded. `strings` is the string table that contains the
        names of these functions.
        """
        for symbols, strings in self._elf.symbol_tables():
            yield symbols[are_functions(symbols) & (symbols["value"] > 0) & (symbols["size"] > 0)], strings

    @cached_property
    def lines(self) -> LineTable:
        return LineTable(self._named(".debug_line"), self._named(".debug_line_str"), self._steps)

    def _named(self, name: str) -> bytes:
        found = self._elf.named(name)
        return bytes(found) if len(found) <= _LONGEST_TABLE else b""


class Code:
    """The GPU functions in a core dump. Modules of machine code that cannot be read are left out."""

    def __init__(self, modules: Iterable[tuple[Bytes, str]]) -> None:
        tables: list[NDArray[Any]] = [np.zeros(0, SYMBOL)]
        self._owners: list[tuple[Module, Bytes]] = []
        steps = Steps()
        for content, what in modules:
            with suppress(TraceError):
                module = Module(content, what, steps)
                for symbols, names in module.functions():
                    tables.append(symbols)
                    self._owners.append((module, names))
        symbols = np.concatenate(tables)
        order = np.argsort(symbols["value"], kind="stable")
        self._symbols = symbols[order]
        self._owner = np.repeat(np.arange(len(tables)) - 1, [len(table) for table in tables])[order]

    def function(self, address: int) -> Function | None:
        """Returns the function that contains an address of the device; None if no function contains the address."""
        at = int(np.searchsorted(self._symbols["value"], np.uint64(address), side="right")) - 1
        if at < 0 or address - int(self._symbols[at]["value"]) >= int(self._symbols[at]["size"]):
            return None
        module, names = self._owners[self._owner[at]]
        return Function(module, text(names, int(self._symbols[at]["name"])), int(self._symbols[at]["value"]))
