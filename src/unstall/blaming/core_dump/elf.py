"""Reads the sections of an ELF file. GPU core dumps are ELF files. Each module of machine code in a
dump is an ELF file too.

An ELF file is untrusted, so each offset and each size in it is checked against the size of the file
before use. The time to read a file is linear in its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstall.errors import TraceError

Bytes = NDArray[np.uint8]
NULL, SYMBOLS, STRINGS, NO_BITS = 0, 2, 3, 8
_HEADER = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
_SECTION = np.dtype(
    [
        *((name, "<u4") for name in ("name", "type")),
        *((name, "<u8") for name in ("flags", "address", "at", "size")),
        *((name, "<u4") for name in ("link", "info")),
        *((name, "<u8") for name in ("align", "row_bytes")),
    ]
)
SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_FUNCTION = 2  # STT_FUNC, in the low four bits of `info`
_MOST_SECTIONS, _MOST_READ = 1 << 22, 1 << 17
_LONGEST_TEXT = 1 << 14
_BIG_COUNT = 0xFFFF
"""If a header field has this value, the real number is too large for the field, and section 0 contains the number."""


class Elf:
    """A 64-bit ELF file.

    Attributes:
        content: The bytes of the file.
        what: The name of the file in error messages.
        sections: The section table: an array with one row per section. A section's number is the
            index of its row.
        abi: The EI_OSABI field of the header.
        kind: The e_type field of the header.
        machine: The e_machine field of the header.
    """

    def __init__(self, content: Bytes, what: str) -> None:
        """Reads the header and the section table of an ELF file.

        Args:
            content: The bytes of the file.
            what: The name of the file in error messages.

        Raises:
            TraceError: `content` is not a 64-bit ELF file, or its end is missing.
        """
        self.content, self.what = content, what
        if len(content) < _HEADER.size or bytes(content[:6]) != b"\x7fELF\x02\x01":
            raise TraceError(f"{what}: not a 64-bit ELF file")
        header = _HEADER.unpack(bytes(content[: _HEADER.size]))
        self.abi, self.kind, self.machine = int(header[4]), int(header[6]), int(header[7])
        at, row_bytes, count, names = header[11], header[16], header[17], header[18]
        if row_bytes != _SECTION.itemsize:
            raise TraceError(f"{what}: its table of sections has rows of {row_bytes} bytes, not {_SECTION.itemsize}")
        if count == 0 or names == _BIG_COUNT:
            first = self._rows(at, 1)[0]
            count = count or int(first["size"])
            names = int(first["link"]) if names == _BIG_COUNT else names
        if count > _MOST_SECTIONS:
            raise TraceError(f"{what}: it has {count:,} sections; at most {_MOST_SECTIONS:,} are read")
        self.sections = self._rows(at, count)
        self._names = names

    def _rows(self, at: int, count: int) -> NDArray[Any]:
        if at + count * _SECTION.itemsize > len(self.content):
            raise TraceError(f"{self.what}: cut off: its table of sections ends behind the end of the file")
        return self.content[at : at + count * _SECTION.itemsize].view(_SECTION)

    def of_type(self, kind: int) -> NDArray[np.intp]:
        """Returns the numbers of the sections whose ELF type (sh_type) is `kind`, ascending."""
        return np.flatnonzero(self.sections["type"] == kind)

    def filled(self, kind: int) -> list[int]:
        """Returns the numbers of the non-empty sections whose ELF type (sh_type) is `kind`,
        ascending.

        Raises:
            TraceError: There are too many such sections, or their total size is larger than the
                file. In both cases, reading them would take too long.
        """
        numbers = self.of_type(kind)
        numbers = numbers[self.sections["size"][numbers] > 0]
        together = float(self.sections["size"][numbers].sum(dtype=float))
        if len(numbers) > _MOST_READ or together > len(self.content):
            raise TraceError(f"{self.what}: its sections are larger than the file")
        return [int(number) for number in numbers]

    def data(self, number: int) -> Bytes:
        """Returns the bytes of the section whose number is `number`."""
        section = self.sections[number]
        at, size = int(section["at"]), int(section["size"])
        if section["type"] in (NULL, NO_BITS):
            return self.content[:0]
        if at + size > len(self.content):
            raise TraceError(f"{self.what}: cut off: section {number} ends behind the end of the file")
        return self.content[at : at + size]

    def symbol_tables(self) -> Iterator[tuple[NDArray[Any], Bytes]]:
        """Yields `(symbols, strings)` for each symbol table that is not empty. `symbols` are its rows, of dtype
        `SYMBOL`. `strings` is the string table with their names.

        Raises:
            TraceError: As `filled` and `data` do.
        """
        for number in self.filled(SYMBOLS):
            data, link = self.data(number), int(self.sections[number]["link"])
            if link < len(self.sections):
                yield data[: len(data) // SYMBOL.itemsize * SYMBOL.itemsize].view(SYMBOL), self.data(link)

    def named(self, name: str) -> Bytes:
        """Returns the bytes of the first section with the name `name`; an empty array if no section has this name."""
        if not 0 < self._names < len(self.sections):
            return self.content[:0]
        names = self.data(self._names)
        wanted = np.frombuffer(name.encode() + b"\0", np.uint8)
        offsets = self.sections["name"].astype(np.int64)
        left = np.flatnonzero((self.sections["type"] != NULL) & (offsets + len(wanted) <= len(names)))
        for at, letter in enumerate(wanted):
            left = left[names[offsets[left] + at] == letter]
        return self.data(int(left[0])) if len(left) else self.content[:0]


def are_functions(symbols: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns, for each row of a symbol table, whether it is a function's."""
    found: NDArray[np.bool_] = symbols["info"] % 16 == _FUNCTION
    return found


def text(strings: Bytes, at: int) -> str:
    """Returns the string that begins at byte `at` of the string table `strings`; "" if `at` is outside of the table."""
    piece = bytes(strings[at : at + _LONGEST_TEXT]) if 0 <= at < len(strings) else b""
    return piece.partition(b"\0")[0].decode(errors="replace")
