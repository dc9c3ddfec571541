"""A core dump is read as NVIDIA's cuda-gdb reads it. `cuda_gdb.txt` is what that printed of the same dumps."""

from __future__ import annotations

import re

import pytest
from blaming.core_dump.dumps import FOLDER, dump

from unstall.blaming.core_dump.result import Grid

_PIECES = re.split(
    r"^Opening GPU coredump: (\w+)-\w+\.core\n", (FOLDER / "cuda_gdb.txt").read_text(), flags=re.MULTILINE
)
PRINTED = dict(zip(_PIECES[1::2], _PIECES[2::2], strict=True))
HEX = "0x[0-9a-f]+"
each_dump = pytest.mark.parametrize("name", sorted(PRINTED))


def printed(name: str, pattern: str) -> str:
    found = re.search(pattern, PRINTED[name])
    assert found, PRINTED[name]
    return found[1]


def only_grid(name: str) -> Grid:
    (grid,) = dump(name).grids
    return grid


@each_dump
def test_the_kernel_has_the_same_name(name: str) -> None:
    name_and_types = only_grid(name).kernel
    assert name_and_types.partition("(")[0].removeprefix("void ") == printed(name, r"\) ([a-z][^(]*)\(\)")


@each_dump
def test_the_sizes_of_grid_and_block_are_the_same(name: str) -> None:
    sizes = [tuple(map(int, size.split(","))) for size in printed(name, r"<<<\((.*)\)>>>").split("),(")]
    assert [only_grid(name).blocks, only_grid(name).threads] == sizes


@each_dump
def test_the_number_of_the_grid_is_the_same(name: str) -> None:
    assert only_grid(name).number == int(printed(name, r"grid (\d+),"))


@each_dump
def test_as_many_multiprocessors_are_at_work(name: str) -> None:
    mask = int(printed(name, rf"Active ({HEX})"), 16)
    assert only_grid(name).multiprocessors == mask.bit_count()


@each_dump
def test_warps_stand_at_the_same_instruction(name: str) -> None:
    assert only_grid(name).standing[0].address == int(printed(name, rf"#0 +({HEX}) in"), 16)


def test_an_exception_has_the_same_name_and_instruction() -> None:
    exception = only_grid("illegal").exception
    assert exception is not None
    assert exception.at is not None
    assert exception.name == printed("illegal", "CUDA Exception: (.*)")
    assert exception.at.address == int(printed("illegal", rf"triggered at PC ({HEX})"), 16)


def test_an_assertion_is_an_exception() -> None:
    exception = only_grid("assert").exception
    assert exception is not None
    assert (exception.name, exception.error) == ("Warp Assert", 710)


@pytest.mark.parametrize("name", ["spin", "graph"])
def test_a_kernel_that_only_runs_has_no_exception(name: str) -> None:
    assert "Exception" not in PRINTED[name]
    assert only_grid(name).exception is None
