"""From an instruction to its line of source: as binutils reads it, and with what NVIDIA's compilers add."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from blaming.core_dump.dumps import FOLDER, loaded
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from unstall.blaming.core_dump.elf import Elf
from unstall.blaming.core_dump.line_table import LineTable, Steps
from unstall.blaming.core_dump.result import SourceLine

SOURCE = "\n".join(
    [
        "int first(int x) {",
        "    int y = x * 3;",
        "    if (y > 7)",
        "        y -= 2;",
        *[""] * 300,
        "    return y;",
        "}",
        "int second(int x) { return first(x) + 1; }",
    ]
)
GATHER_4, GATHER_5 = "_Z6gatherILi4EEvPfPKfPKx", "_Z6gatherILi5EEvPfPKfPKx"
AT = {GATHER_4: 0x7FD13B7A0F00, GATHER_5: 0x7FD13B7A1100}
CUDA = "/home/me/kernels/lines.cu"
LOADS, STORES = 0xB0, 0x110
"""Offsets of instructions: the load that `load` makes, and what is behind the last line of the body."""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "program.c").write_text(SOURCE)
    return folder


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("readelf"), reason="needs gcc and binutils"
)
@pytest.mark.parametrize("version", [3, 4, 5])
def test_each_instruction_has_the_line_that_binutils_tells(compiled: Path, version: int) -> None:
    options = ["-O1", "-ffunction-sections", "-nostdlib", "-static", "-Wl,-e,first", f"-gdwarf-{version}"]
    program = compiled / f"program{version}"
    subprocess.run(["gcc", *options, "-o", program, "program.c"], check=True, cwd=compiled)
    told = subprocess.run(
        ["readelf", "--debug-dump=decodedline", program], capture_output=True, text=True, check=True
    ).stdout
    rows = [(int(a, 16), int(n)) for n, a in re.findall(r"program\.c +(\d+) +(0x[0-9a-f]+)", told)]
    ends = [int(a, 16) for a in re.findall(r"program\.c +- +(0x[0-9a-f]+)", told)]
    functions = sorted(int(a, 16) for a in _functions(program))
    elf = Elf(np.fromfile(program, np.uint8), "program")
    lines = LineTable(elf.named(".debug_line").tobytes(), elf.named(".debug_line_str").tobytes())
    assert len(functions) == len(ends) == 2
    for address in range(functions[0], ends[-1]):
        function = max(each for each in functions if each <= address)
        (found,) = lines.lines_at(function, address)
        assert found.line == [line for at, line in rows if at <= address][-1]
        assert Path(found.file).name == "program.c"


def _functions(program: Path) -> list[str]:
    told = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^([0-9a-f]+) T (?:first|second)$", told, re.MULTILINE)


def test_an_instruction_of_an_inlined_function_has_its_line_and_that_of_the_call() -> None:
    function = loaded(AT).function(AT[GATHER_4] + LOADS)
    assert function is not None
    assert function.instruction(AT[GATHER_4] + LOADS).source == (SourceLine(CUDA, 2), SourceLine(CUDA, 6))


def test_an_instruction_behind_inlined_code_has_one_line_again() -> None:
    function = loaded(AT).function(AT[GATHER_5] + STORES)
    assert function is not None
    assert function.instruction(AT[GATHER_5] + STORES).source == (SourceLine(CUDA, 7),)


def test_an_instruction_is_of_the_instance_of_the_template_that_it_is_in() -> None:
    function = loaded(AT).function(AT[GATHER_5] + LOADS)
    assert function is not None
    told = function.instruction(AT[GATHER_5] + LOADS)
    assert (told.function, told.offset) == ("void gather<5>(float*, float const*, long long const*)", LOADS)


def test_a_function_that_is_not_loaded_has_no_addresses() -> None:
    assert loaded({GATHER_4: AT[GATHER_4]}).function(AT[GATHER_5]) is None


def test_an_address_behind_a_function_is_not_in_it() -> None:
    only = loaded({GATHER_4: AT[GATHER_4]})
    assert only.function(AT[GATHER_4] + 0x1FF) is not None
    assert only.function(AT[GATHER_4] + 0x200) is None


def test_a_function_without_rows_has_no_lines() -> None:
    assert LineTable(b"").lines_at(AT[GATHER_4], AT[GATHER_4]) == ()


TABLE = Elf(np.fromfile(FOLDER / "lines.cubin", np.uint8), "lines.cubin").named(".debug_line").tobytes()


@examples(300)
@given(st.data())
def test_a_broken_table_gives_lines_or_none(data: st.DataObject) -> None:
    table = bytearray(TABLE)
    for _ in range(data.draw(st.integers(1, 8))):
        table[data.draw(st.integers(0, len(table) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(table[: data.draw(st.integers(0, len(table)))])
    lines = LineTable(cut)
    for address in (0, LOADS, STORES):
        assert all(each.line > 0 for each in lines.lines_at(0, address))


def test_a_table_that_never_ends_is_given_up() -> None:
    start = TABLE.index(b"\0\x09\x02") + 11
    endless = TABLE[:start] + b"\x01" * 2_000_000
    endless = (len(endless) - 4).to_bytes(4, "little") + endless[4:]
    assert LineTable(endless).lines_at(0, LOADS) == ()


def test_a_functions_rows_are_read_once() -> None:
    once = LineTable(TABLE, steps=Steps(100))
    assert all(once.lines_at(0, LOADS) for _ in range(100))


def test_the_tables_of_a_dump_have_one_limit() -> None:
    steps = Steps(100)
    tables = [LineTable(TABLE, steps=steps) for _ in range(100)]
    found = [bool(table.lines_at(0, LOADS)) for table in tables]
    assert (found[0], found[-1]) == (True, False)


def test_an_address_of_more_than_64_bits_is_one_of_64() -> None:
    start = TABLE.index(b"\0\x09\x02") + 11
    large = TABLE[:start] + b"\0\x0a\x02" + b"\xff" * 9 + b"\x01\0\x01\x01"
    assert LineTable((len(large) - 4).to_bytes(4, "little") + large[4:]).lines_at(0, LOADS) == ()
