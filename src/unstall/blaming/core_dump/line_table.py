"""From an instruction to a line of source: the `.debug_line` of a module, in DWARF 2 to 5.

NVIDIA's compilers put a function's rows in one sequence, which begins with the function's address, and extend the table
by an instruction for inlined code: it names the row of the call, counted from 1 within the sequence. That is why this
is no general reader of DWARF. Only the sequence of the wanted function is run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from unstall.blaming.core_dump.result import SourceLine

_MOST_UNITS, _MOST_FILES, _MOST_STEPS, _DEEPEST = 100_000, 100_000, 300_000, 16
_END, _SET_ADDRESS, _INLINED = 1, 2, 0x90
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD_PC, _FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
_TOP = 1 << 64


class _Row(NamedTuple):
    address: int
    file: int
    line: int
    inlined_at: int


class _Cursor:
    """Reads numbers of a unit in turn. Beyond its end it raises ValueError."""

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
    """What the head of a unit says. `files` counts from 1 up to version 4, and from 0 in version 5."""

    shortest: int
    line_base: int
    line_range: int
    arguments: tuple[int, ...]
    files: tuple[str, ...]
    end: int


def lines_at(content: bytes, function: int, address: int, strings: bytes = b"") -> tuple[SourceLine, ...]:
    """Returns the line that an instruction was made from, then the lines at which that was inlined.

    `content` is a `.debug_line`, and `strings` the `.debug_line_str` of the same module. `function` is where the
    instruction's function begins. Returns nothing if the table has no row for it, or is broken.
    """
    start = content.find(b"\0\x09\x02" + function.to_bytes(8, "little"))
    if start < 0:
        return ()
    try:
        unit = _unit_around(content, start, strings)
        rows = list(_rows(_Cursor(content, start, unit.end), unit))
    except ValueError:
        return ()
    found = next((at for at, (one, after) in enumerate(pairwise(rows)) if one.address <= address < after.address), None)
    chain: list[SourceLine] = []
    while found is not None and len(chain) < _DEEPEST:
        row = rows[found]
        if not 0 <= row.file < len(unit.files) or row.line <= 0:
            break
        chain.append(SourceLine(unit.files[row.file], row.line))
        found = row.inlined_at - 1 if 0 < row.inlined_at <= found else None
    return tuple(chain)


def _unit_around(content: bytes, at: int, strings: bytes) -> _Unit:
    begin = 0
    for _ in range(_MOST_UNITS):
        cursor = _Cursor(content, begin, len(content))
        wide = (length := cursor.number(4)) == 0xFFFFFFFF
        length = cursor.number(8) if wide else length
        end = cursor.at + length
        if at < end:
            cursor.end = min(end, len(content))
            return _head(cursor, strings, 8 if wide else 4)
        begin = end
    raise ValueError("the line table has too many units")


def _head(cursor: _Cursor, strings: bytes, offset_bytes: int) -> _Unit:
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
    files = _files(cursor, strings, offset_bytes) if version == 5 else _old_files(cursor)
    return _Unit(shortest, line_base, line_range, arguments, files, cursor.end)


def _old_files(cursor: _Cursor) -> tuple[str, ...]:
    """Up to version 4. Folder 0 is that of the compiler, which the table does not have."""
    folders = [""]
    while (folder := cursor.string()) and len(folders) < _MOST_FILES:
        folders.append(folder)
    files = [""]
    while (name := cursor.string()) and len(files) < _MOST_FILES:
        of, _written, _size = cursor.leb(), cursor.leb(), cursor.leb()
        files.append(_path(folders[of] if of < len(folders) else "", name))
    return tuple(files)


def _files(cursor: _Cursor, strings: bytes, offset_bytes: int) -> tuple[str, ...]:
    folders = [name for name, _ in _entries(cursor, strings, offset_bytes)]
    found = _entries(cursor, strings, offset_bytes)
    return tuple(_path(folders[of] if of < len(folders) else "", name) for name, of in found)


def _entries(cursor: _Cursor, strings: bytes, offset_bytes: int) -> Iterator[tuple[str, int]]:
    """Yields name and folder of the folders or files of version 5."""
    form_of = [(cursor.leb(), cursor.leb()) for _ in range(cursor.byte())]
    count = cursor.leb()
    if count > _MOST_FILES:
        raise ValueError("the line table has too many files")
    for _ in range(count):
        values = {what: _value(cursor, form, strings, offset_bytes) for what, form in form_of}
        name, folder = values.get(1, ""), values.get(2, 0)
        yield str(name), folder if isinstance(folder, int) else 0


def _value(cursor: _Cursor, form: int, strings: bytes, offset_bytes: int) -> str | int:
    match form:
        case 0x08:  # a string
            return cursor.string()
        case 0x0E | 0x1F:  # a string of .debug_str, which is not at hand, or of .debug_line_str
            at = cursor.number(offset_bytes)
            return _Cursor(strings, at, len(strings)).string() if form == 0x1F else ""
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


def _path(folder: str, name: str) -> str:
    return name if name.startswith("/") or not folder else f"{folder}/{name}"


def _rows(cursor: _Cursor, unit: _Unit) -> Iterator[_Row]:
    """Runs the instructions up to the end of the sequence. The last row ends it."""
    address, file, line, inlined_at = 0, 1, 1, 0
    for _ in range(_MOST_STEPS):
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
                address = inner.number(length - 1)
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
    raise ValueError("the line table is too long")
