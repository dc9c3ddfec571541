"""The machine code that was loaded: which function an address is in, and which line of source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.blaming.core_dump.elf import SYMBOLS, Bytes, Elf, text
from unstall.blaming.core_dump.line_table import lines_at
from unstall.blaming.core_dump.result import Instruction
from unstall.blaming.demangle import demangled
from unstall.errors import TraceError

_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION = 2
_LONGEST_TABLE = 1 << 28


@dataclass(frozen=True)
class Function:
    """A function of a module. `linked` is its name as it is linked."""

    module: Module
    linked: str
    at: int

    def instruction(self, address: int, warps: int = 0) -> Instruction:
        """Returns an instruction of this function by its address."""
        source = lines_at(self.module.line_table, self.at, address, self.module.line_strings)
        name, offset = demangled(self.linked), address - self.at
        return Instruction(function=name, offset=offset, address=address, source=source, warps=warps)


class Module:
    """Machine code as it was loaded, so that its addresses are those of the device."""

    def __init__(self, content: Bytes, what: str) -> None:
        self._elf = Elf(content, what)

    def function(self, address: int) -> Function | None:
        """Returns the function that an address is in."""
        for symbols, strings in self._tables:
            inside = np.uint64(address) - symbols["value"] < symbols["size"]
            for symbol in symbols[inside][:1]:
                return Function(self, text(strings, int(symbol["name"])), int(symbol["value"]))
        return None

    @cached_property
    def _tables(self) -> list[tuple[NDArray[Any], Bytes]]:
        """The functions that are loaded, each table with its names."""
        found = []
        for number in self._elf.of_type(SYMBOLS):
            data, link = self._elf.data(int(number)), int(self._elf.sections[number]["link"])
            symbols = data[: len(data) // _SYMBOL.itemsize * _SYMBOL.itemsize].view(_SYMBOL)
            functions = symbols[(symbols["info"] % 16 == _FUNCTION) & (symbols["value"] > 0)]
            if len(functions) and 0 < link < len(self._elf.sections):
                found.append((functions, self._elf.data(link)))
        return found

    @cached_property
    def line_table(self) -> bytes:
        return self._named(".debug_line")

    @cached_property
    def line_strings(self) -> bytes:
        return self._named(".debug_line_str")

    def _named(self, name: str) -> bytes:
        found = self._elf.named(name)
        return bytes(found) if len(found) <= _LONGEST_TABLE else b""


class Code:
    """All modules of a dump. One that is broken has no functions."""

    def __init__(self, modules: Iterable[tuple[Bytes, str]]) -> None:
        self._unread = list(modules)
        self._read: list[Module] = []

    def function(self, address: int) -> Function | None:
        """Returns the function that an address is in."""
        for module in self._modules():
            try:
                if (found := module.function(address)) is not None:
                    return found
            except TraceError:
                continue
        return None

    def _modules(self) -> Iterable[Module]:
        yield from self._read
        while self._unread:
            content, what = self._unread.pop()
            try:
                self._read.append(Module(content, what))
            except TraceError:
                continue
            yield self._read[-1]
