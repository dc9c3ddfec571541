"""Finds the source line of an instruction. Reads the `.debug_line` section (DWARF 2 to 5) of the instruction's module.

This is not a general reader of DWARF. It relies on two properties of the tables that NVIDIA's compilers write. All rows
of a function are in one sequence, which begins with the function's address. For inlined code, an additional opcode in
the table gives the row of the call. Rows are counted from 1 within the sequence. Only the sequence of the wanted
function is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unstall.blaming.core_dump.result import SourceLine

_MOST_STEPS, _DEEPEST = 1_000_000, 16
_SEARCHED_IN_A_STEP = 1 << 10
"""How many bytes of a line table one step of work searches. `Steps` limits the number of steps."""
_NAMED_IN_A_STEP, _LONGEST_NAME = 1 << 6, 1 << 14
_END, _SET_ADDRESS, _INLINED = 1, 2, 0x90
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_TOP = 1 << 64


class _Row(NamedTuple):
    address: int
    file: int
    line: int
    inlined_at: int


class _Cursor:
    """Reads numbers from a unit (a part) of the line table. Raises ValueError at the end of the unit."""

    def __init__(self, content: bytes, at: int, end: int) -> None:
        self.content, self.at, self.end = content, at, min(end, len(content))

    def take(self, count: int) -> bytes:
        if not 0 <= count <= self.end - self.at:
            raise ValueError("the line table is cut off")
        self.at += count
        return self.content[self.at - count : self.at]

    def byte(self) -> int:
        if self.at >= self.end:
            raise ValueError("the line table is cut off")
        self.at += 1
        return self.content[self.at - 1]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def signed_byte(self) -> int:
        (value,) = struct.unpack("<b", self.take(1))
        return int(value)

    def leb(self, *, signed: bool = False) -> int:
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 63:
                raise ValueError("a number of the line table is too long")

    def string(self) -> str:
        stop = self.content.find(b"\0", self.at, self.end)
        if stop < 0:
            raise ValueError("a name of the line table is cut off")
        return self.take(stop + 1 - self.at)[:-1].decode(errors="replace")


@dataclass(frozen=True)
class _Unit:
    """The header of a unit (a part) of the line table.

    `files` has the unit's source files. Their numbers begin at 1 in DWARF versions up to 4, and at
    0 in version 5.
    """

    shortest: int
    line_base: int
    line_range: int
    arguments: tuple[int, ...]
    files: tuple[str, ...]
    end: int


class Steps:
    """A limit on the work of reading the line tables (DWARF tables that lead from instructions to
    source lines) of one core dump. An untrusted table could otherwise take forever to read.
    """

    def __init__(self, left: int = _MOST_STEPS) -> None:
        self._left = left

    def take(self, count: int) -> None:
        """Takes `count` steps of work from the limit. Raises ValueError if fewer steps are left."""
        self._left -= count
        if self._left < 0:
            raise ValueError("the line tables are too long")


@dataclass(frozen=True)
class _Sequence:
    """The rows of the line table for one function. `addresses` has the address of each row's instruction."""

    unit: _Unit
    rows: list[_Row]
    addresses: NDArray[np.uint64]


class LineTable:
    """A table that leads from the instructions of one module of GPU code to source lines. A
    function's rows are decoded once, at the first question about the function.
    """

    def __init__(self, content: bytes, strings: bytes = b"", steps: Steps | None = None) -> None:
        """Makes the line table of one module.

        Args:
            content: The module's `.debug_line` section.
            strings: The module's `.debug_line_str` section; b"" if it has none.
            steps: The limit on the work. Several line tables may share one limit. If None, this
                table has a limit of its own.
        """
        self._content, self._strings, self._steps = content, strings, steps or Steps()
        self._heads: dict[int, _Unit] = {}
        self._sequences: dict[int, _Sequence | None] = {}

    def lines_at(self, function: int, address: int) -> tuple[SourceLine, ...]:
        """Returns the source line of an instruction. If the instruction comes from an inlined
        function, the lines that called this function follow, innermost first.

        Returns () if the table is broken, or has no row for the instruction.

        Args:
            function: The first address of the function that contains the instruction.
            address: The address of the instruction.
        """
        if function not in self._sequences:
            try:
                self._sequences[function] = self._sequence(function)
            except ValueError:
                self._sequences[function] = None
        sequence = self._sequences[function]
        if sequence is None:
            return ()
        rows, addresses, files = sequence.rows, sequence.addresses, sequence.unit.files
        at = np.flatnonzero((addresses[:-1] <= np.uint64(address)) & (np.uint64(address) < addresses[1:]))
        found = int(at[0]) if len(at) else None
        chain: list[SourceLine] = []
        while found is not None and len(chain) < _DEEPEST:
            row = rows[found]
            if not 0 <= row.file < len(files) or row.line <= 0:
                break
            chain.append(SourceLine(files[row.file], row.line))
            found = row.inlined_at - 1 if 0 < row.inlined_at <= found else None
        return tuple(chain)

    def _sequence(self, function: int) -> _Sequence | None:
        self._steps.take(len(self._content) // _SEARCHED_IN_A_STEP)
        start = self._content.find(b"\0\x09\x02" + function.to_bytes(8, "little"))
        if start < 0:
            return None
        unit = self._unit_around(start)
        rows = list(_rows(_Cursor(self._content, start, unit.end), unit, self._steps))
        return _Sequence(unit, rows, np.array([row.address for row in rows], np.uint64))

    def _unit_around(self, at: int) -> _Unit:
        begin = 0
        while True:
            self._steps.take(1)
            cursor = _Cursor(self._content, begin, len(self._content))
            wide = (length := cursor.number(4)) == 0xFFFFFFFF
            length = cursor.number(8) if wide else length
            end = cursor.at + length
            if at < end:
                break
            begin = end
        if begin not in self._heads:
            cursor.end = min(end, len(self._content))
            self._heads[begin] = _head(cursor, self._strings, 8 if wide else 4, self._steps)
        return self._heads[begin]


def _head(cursor: _Cursor, strings: bytes, offset_bytes: int, steps: Steps) -> _Unit:
    version = cursor.number(2)
    if not 2 <= version <= 5:
        raise ValueError(f"a line table of version {version}")
    if version == 5:
        cursor.take(2)  # the size of addresses, and of segments
    cursor.number(offset_bytes)
    shortest = cursor.byte()
    cursor.take(2 if version >= 4 else 1)  # operations of an instruction, and whether rows are statements at first
    line_base, line_range, operations = cursor.signed_byte(), cursor.byte(), cursor.byte()
    if not line_range:
        raise ValueError("the line table divides by zero")
    arguments = (0, *(cursor.byte() for _ in range(operations - 1)))
    files = _files(cursor, strings, offset_bytes, steps) if version == 5 else _old_files(cursor, steps)
    return _Unit(shortest, line_base, line_range, arguments, files, cursor.end)


def _old_files(cursor: _Cursor, steps: Steps) -> tuple[str, ...]:
    """Returns the paths of the source files that a unit of the line table lists. The unit must be
    in DWARF version 4 or earlier.

    The unit does not contain folder 0, which is the compiler's working directory.
    """
    folders = [""]
    while folder := cursor.string():
        steps.take(1)
        folders.append(folder)
    files = [""]
    while name := cursor.string():
        steps.take(1)
        of, _written, _size = cursor.leb(), cursor.leb(), cursor.leb()
        files.append(_path(folders[of] if of < len(folders) else "", name, steps))
    return tuple(files)


def _files(cursor: _Cursor, strings: bytes, offset_bytes: int, steps: Steps) -> tuple[str, ...]:
    folders = [name for name, _ in _entries(cursor, strings, offset_bytes, steps)]
    found = _entries(cursor, strings, offset_bytes, steps)
    return tuple(_path(folders[of] if of < len(folders) else "", name, steps) for name, of in found)


def _entries(cursor: _Cursor, strings: bytes, offset_bytes: int, steps: Steps) -> Iterator[tuple[str, int]]:
    """Yields `(name, folder number)` for each folder or file that a unit of the line table lists.
    The unit must be in DWARF version 5.
    """
    form_of = [(cursor.leb(), cursor.leb()) for _ in range(cursor.byte())]
    for _ in range(cursor.leb()):
        steps.take(1 + len(form_of))
        values = {what: _value(cursor, form, strings, offset_bytes) for what, form in form_of}
        name, folder = values.get(1, ""), values.get(2, 0)
        yield str(name), folder if isinstance(folder, int) else 0


def _value(cursor: _Cursor, form: int, strings: bytes, offset_bytes: int) -> str | int:
    match form:
        case 0x08:  # a string
            return cursor.string()
        case 0x0E | 0x1F:  # a string of .debug_str, which is not at hand, or of .debug_line_str
            at = cursor.number(offset_bytes)
            return _Cursor(strings, at, min(len(strings), at + _LONGEST_NAME)).string() if form == 0x1F else ""
        case 0x0B | 0x05 | 0x06 | 0x07:
            return cursor.number({0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8}[form])
        case 0x1E:  # a digest
            cursor.take(16)
            return 0
        case 0x0F:
            return cursor.leb()
        case 0x09:
            cursor.take(cursor.leb())
            return 0
    raise ValueError(f"a form of the line table that is not known: {form}")


def _path(folder: str, name: str, steps: Steps) -> str:
    steps.take((len(folder) + len(name)) // _NAMED_IN_A_STEP)
    return name if name.startswith("/") or not folder else f"{folder}/{name}"


def _rows(cursor: _Cursor, unit: _Unit, left: Steps) -> Iterator[_Row]:
    """Yields the rows of a sequence, which are the rows of one function.

    The last row marks the end of the sequence, and has no line.
    """
    address, file, line, inlined_at = 0, 1, 1, 0
    while True:
        left.take(1)
        operation = cursor.byte()
        if operation >= len(unit.arguments):
            steps, ahead = divmod(operation - len(unit.arguments), unit.line_range)
            address = (address + steps * unit.shortest) % _TOP
            line += unit.line_base + ahead
            yield _Row(address, file, line, inlined_at)
        elif operation == 0:
            length = cursor.leb()
            inner = _Cursor(cursor.take(length), 0, length)
            kind = inner.byte() if length else 0
            if kind == _END:
                yield _Row(address, 0, 0, 0)
                return
            if kind == _SET_ADDRESS:
                address = inner.number(length - 1) % _TOP
            elif kind == _INLINED:
                inlined_at = inner.leb()
        elif operation == _COPY:
            yield _Row(address, file, line, inlined_at)
        elif operation == _ADVANCE_PC:
            address = (address + cursor.leb() * unit.shortest) % _TOP
        elif operation == _ADVANCE_LINE:
            line += cursor.leb(signed=True)
        elif operation == _SET_FILE:
            file = cursor.leb()
        elif operation == _CONST_ADD_PC:
            address = (address + (255 - len(unit.arguments)) // unit.line_range * unit.shortest) % _TOP
        elif operation == _FIXED_ADVANCE_PC:
            address = (address + cursor.number(2)) % _TOP
        else:
            for _ in range(unit.arguments[operation]):
                cursor.leb()
