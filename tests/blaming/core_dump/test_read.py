"""What a core dump tells that cuda-gdb's first lines do not, and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from blaming.core_dump.dumps import FOLDER, content, dump, read

from unstall.blaming.core_dump.elf import Elf
from unstall.blaming.core_dump.read import read_core_dump
from unstall.blaming.core_dump.result import SourceLine
from unstall.errors import TraceError


def test_the_driver_and_the_device_are_told() -> None:
    found = dump("illegal")
    assert (found.driver, found.cuda) == ("580.159", "13.0")
    assert [(each.name, each.architecture, each.multiprocessors) for each in found.devices] == [
        ("NVIDIA H200", "sm_90", 132)
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("triton", SourceLine("/home/me/kernels/tri.py", 13)),
        ("cupy", SourceLine("/tmp/tmpm1f1nxek/38fdb9d9631aa12bcfcf451412b7e2669f659df5.cubin.cu", 5)),
    ],
)
def test_the_line_of_the_kernels_source_is_told_if_it_was_compiled_with_lines(name: str, line: SourceLine) -> None:
    exception = dump(name).exception
    assert exception is not None
    assert exception.at is not None
    assert exception.at.source == (line,)


def test_the_first_block_and_how_much_failed_are_told() -> None:
    exception = dump("illegal").exception
    assert exception is not None
    assert (exception.block, exception.thread) == ((0, 0, 0), (0, 0, 0))
    assert (exception.blocks, exception.warps, exception.threads) == (16, 16, 512)


def test_a_device_that_only_waits_runs_no_grid() -> None:
    assert dump("value").grids == ()


@pytest.mark.parametrize("name", ["illegal", "assert"])
def test_a_dump_that_was_cut_off_is_refused(name: str) -> None:
    with pytest.raises(TraceError, match="cut off"):
        read(content(name)[:-1])


def test_an_empty_file_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "a.core").touch()
    with pytest.raises(TraceError, match="empty"):
        read_core_dump(tmp_path / "a.core")


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(TraceError, match="not a 64-bit ELF file"):
        read_core_dump(FOLDER / "cuda_gdb.txt")


def test_a_module_alone_is_no_dump() -> None:
    with pytest.raises(TraceError, match="no core dump of a GPU"):
        read_core_dump(FOLDER / "lines.cubin")


def test_a_device_is_never_opened() -> None:
    with pytest.raises(TraceError, match="no file"):
        read_core_dump(Path("/dev/zero"))


def changed(name: str, number: int, field: int, kind: str, value: int) -> bytes:
    """A dump with another value in the header of a section; `field` is the byte in its row of 64."""
    data = bytearray(content(name))
    (at,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into(kind, data, at + number * 64 + field, value)
    return bytes(data)


def section(name: str, kind: int) -> int:
    import numpy as np

    return int(Elf(np.frombuffer(content(name), np.uint8), name).of_type(0x80000000 + kind)[0])


def test_rows_of_a_newer_driver_may_be_longer() -> None:
    data = bytearray(changed("spin", section("spin", 12), 56, "<Q", 200))  # as if the grid's row had 200 bytes
    (headers,) = struct.unpack_from("<Q", data, 40)
    row = headers + section("spin", 12) * 64
    (at,) = struct.unpack_from("<Q", data, row + 24)
    struct.pack_into("<QQ", data, row + 24, len(data), 200)
    assert read(bytes(data) + bytes(data[at : at + 136]) + bytes(64)).grids == dump("spin").grids


def test_rows_that_are_too_short_are_refused() -> None:
    with pytest.raises(TraceError, match="rows of 8 bytes"):
        read(changed("spin", section("spin", 12), 56, "<Q", 8))


def test_a_block_of_no_multiprocessor_is_refused() -> None:
    of_a_block = next(number for number in range(section("spin", 13), 400) if _size("spin", number))
    with pytest.raises(TraceError, match="belongs to nothing"):
        read(changed("spin", of_a_block, 44, "<I", 9999))


def _size(name: str, number: int) -> int:
    (at,) = struct.unpack_from("<Q", content(name), 40)
    (size,) = struct.unpack_from("<Q", content(name), at + number * 64 + 32)
    return int(size)


def test_sections_that_are_larger_than_the_file_together_are_refused() -> None:
    whole = content("spin")
    first, data = section("spin", 13), whole
    for number in range(first, first + 3):
        (at,) = struct.unpack_from("<Q", data, 40)
        piece = bytearray(data)
        struct.pack_into("<QQ", piece, at + number * 64 + 24, 0, len(whole) // 56 * 56)
        data = bytes(piece)
    with pytest.raises(TraceError, match="larger than the file"):
        read(data)
