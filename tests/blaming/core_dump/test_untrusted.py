"""A core dump is untrusted: whatever is in it, it is read or refused."""

from __future__ import annotations

import struct
import time

import numpy as np
import pytest
from blaming.core_dump.dumps import NAMES, content, read
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from unstall.blaming.core_dump.code import Code
from unstall.blaming.core_dump.document import ShownCoreDump
from unstall.blaming.core_dump.elf import _HEADER, _SECTION, STRINGS, SYMBOL, SYMBOLS, Bytes, Elf
from unstall.errors import TraceError

_HEADER_BYTES, _ROW_BYTES = 64, 64
_INTERESTING = [0, 1, 7, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 64, 2**64 - 1]


def _places(whole: bytes) -> list[tuple[int, int]]:
    """Ranges of bytes that matter: the header, headers of sections, and the content of tables and modules."""
    elf = Elf(np.frombuffer(whole, np.uint8), "")
    (headers,) = struct.unpack_from("<Q", whole, 40)
    telling = [n for n in range(1, len(elf.sections)) if elf.sections[n]["size"] and np.any(elf.data(n)[:256])]
    rows = [(headers + n * _ROW_BYTES, _ROW_BYTES) for n in telling[:200]]
    data = [(int(elf.sections[n]["at"]), int(elf.sections[n]["size"])) for n in telling[:200]]
    return [(0, _HEADER_BYTES), (headers, 40 * _ROW_BYTES), *rows, *data]


PLACES = {name: _places(content(name)) for name in NAMES}


def told(changed: bytes) -> str:
    """The report of a file, or why it is refused."""
    try:
        return str(ShownCoreDump(read(changed)))
    except TraceError as error:
        return str(error)


@examples(40)
@given(st.sampled_from(NAMES), st.data())
def test_a_changed_dump_is_read_or_refused(name: str, data: st.DataObject) -> None:
    _change(name, data)


@pytest.mark.slow
@examples(1000)
@given(st.sampled_from(NAMES), st.data())
def test_a_changed_dump_is_read_or_refused_however_it_was_changed(name: str, data: st.DataObject) -> None:
    _change(name, data)


def _change(name: str, data: st.DataObject) -> None:
    changed = bytearray(content(name))
    for _ in range(data.draw(st.integers(1, 6))):
        at, size = data.draw(st.sampled_from(PLACES[name]))
        at += data.draw(st.integers(0, size - 1))
        kind, most = data.draw(st.sampled_from([("<B", 2**8), ("<I", 2**32), ("<Q", 2**64)]))
        value = data.draw(st.sampled_from(_INTERESTING) | st.integers(0, most - 1)) % most
        if at + struct.calcsize(kind) <= len(changed):
            struct.pack_into(kind, changed, at, value)
    assert told(bytes(changed))


@examples(15)
@given(st.sampled_from(NAMES), st.data())
def test_a_piece_of_a_dump_is_refused(name: str, data: st.DataObject) -> None:
    whole = content(name)
    with pytest.raises(TraceError):
        read(whole[: data.draw(st.integers(1, len(whole) - 1))])


@examples(100)
@given(st.binary(max_size=300))
def test_any_bytes_behind_the_first_of_a_dump_are_read_or_refused(rest: bytes) -> None:
    assert told(content("spin")[:40] + rest)


def _elf(count: int, names: int, *parts: bytes) -> Bytes:
    """An ELF file whose table of sections is the last of these parts."""
    at = _HEADER_BYTES + sum(map(len, parts[:-1]))
    told = count if count < 0xFFFF else 0
    header = _HEADER.pack(b"\x7fELF", 2, 1, 1, 0x33, 0, 4, 190, 1, 0, 0, at, 0, 64, 0, 0, 64, told, names)
    return np.frombuffer(b"".join((header, *parts)), np.uint8)


def test_symbol_tables_that_overlap_are_not_read() -> None:
    symbols = np.zeros(100, SYMBOL)
    symbols["info"] = symbols["value"] = symbols["size"] = 2
    sections = np.zeros(100, _SECTION)
    sections["type"], sections["at"], sections["size"] = SYMBOLS, _HEADER_BYTES, symbols.nbytes
    content = _elf(len(sections), 0, symbols.tobytes(), sections.tobytes())
    assert Code([(content, "overlapping")]).function(2) is None


def test_a_name_is_looked_for_once_in_all_sections() -> None:
    names = b".strtab\0" * 40_000  # each of them fits, and no section has it
    sections = np.zeros(40_000, _SECTION)
    sections["type"], sections["name"] = 1, 1
    sections["type"][1], sections["at"][1], sections["size"][1] = STRINGS, _HEADER_BYTES, len(names)
    elf = Elf(_elf(len(sections), 1, names, sections.tobytes()), "names")
    began = time.process_time()
    assert not len(elf.named(".strtab"))
    assert time.process_time() - began < 0.5


def test_control_characters_of_a_kernel_do_not_reach_the_terminal() -> None:
    whole = content("spin")
    assert b"\0spin\0" in whole
    assert "\x1b" not in told(whole.replace(b"\0spin\0", b"\0s\x1b[m\0"))
