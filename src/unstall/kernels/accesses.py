"""`Accesses`: all accesses of one kernel launch to memory, as NumPy arrays with one value for each access."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from pathlib import Path

import numpy as np

from unstall.lines.places import Shortened

Dim = tuple[int, int, int]
"""Three numbers (x, y, z): the size of a grid in blocks, the size of a block in threads, or the position of a block in
its grid or of a thread in its block."""


class Kind(IntEnum):
    READ = 0
    WRITE = 1
    ATOMIC = 2


class Space(IntEnum):
    GLOBAL = 0
    SHARED = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A line of source code: a line of a kernel, or of a function that the kernel calls.

    Attributes:
        file: The path of the source file.
        line: The number of the line in the source file, from 1.
        function: The name of the function that contains the line.
    """

    file: str
    line: int
    function: str

    @property
    def at(self) -> str:
        """The text "FILE:LINE" for this line of source code. FILE is the path without the current folder or the folder
        of installed packages, if the file is below such a folder."""
        return f"{Shortened(str(Path.cwd()))[self.file]}:{self.line}"

    @property
    def source(self) -> str:
        """The text of this line of source code, without leading and trailing spaces. "" if the text is not known."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True, slots=True)
class Memory:
    """An array that a kernel uses.

    Attributes:
        name: The name of the array in the source code of the kernel.
        space: The memory that holds the array: global memory, or the shared memory of a block.
        address: The address of the array's first element in the memory of the CPU, which runs the kernel. An array in
            shared memory has the same address in all blocks.
        shape: The shape of the array.
        item_bytes: The size of one element in bytes.
        order: "C" if the last dimension is contiguous, "F" if the first dimension is contiguous.
    """

    name: str
    space: Space
    address: int
    shape: tuple[int, ...]
    item_bytes: int
    order: str

    def index_of(self, address: int) -> tuple[int, ...]:
        """Returns the index of the element at `address`. The index has one number for each dimension of the array.
        `address` is an address in the memory of the CPU, which runs the kernel."""
        position = (address - self.address) // self.item_bytes
        index = np.unravel_index(position, self.shape, "F" if self.order == "F" else "C")
        return tuple(int(part) for part in index)


@dataclass(frozen=True, slots=True)
class Accesses:
    """All memory accesses of one kernel launch. The arrays from `memory` to `interval` have one value for each access,
    in the order in which the accesses were made.

    Attributes:
        grid: The number of blocks of the launch, as (x, y, z).
        block: The number of threads in each block, as (x, y, z).
        memories: The arrays that the kernel uses.
        places: The lines of source code that make the accesses.
        memory: The array that is accessed, as an index into `memories`.
        address: The address of the accessed element in the memory of the CPU, which runs the kernel.
        size: The size of the accessed element in bytes.
        kind: The kind of access, as a value of `Kind` (read, write or atomic update).
        place: The line of source code that makes the access, as an index into `places`.
        of_block: The number of the block whose thread makes the access. The block at (x, y, z) of the grid has the
            number x + grid x * (y + grid y * z).
        thread: The number of the thread that makes the access. The thread at (x, y, z) of its block has the number x +
            block x * (y + block y * z).
        interval: The number of barriers that the thread has passed before the access.
    """

    grid: Dim
    block: Dim
    memories: Sequence[Memory]
    places: Sequence[Place]
    memory: np.ndarray
    address: np.ndarray
    size: np.ndarray
    kind: np.ndarray
    place: np.ndarray
    of_block: np.ndarray
    thread: np.ndarray
    interval: np.ndarray

    def __len__(self) -> int:
        return len(self.memory)

    def rows(self, which: np.ndarray) -> Accesses:
        """Returns an `Accesses` with only the selected accesses. `which` is a boolean mask with one value for each
        access, or an array of indices of accesses."""
        columns = (getattr(self, name)[which] for name in COLUMNS)
        return Accesses(self.grid, self.block, self.memories, self.places, *columns)

    def of(self, space: Space) -> Accesses:
        """Returns an `Accesses` with only the accesses to memory of the kind `space` (global or shared memory)."""
        spaces = np.array([each.space for each in self.memories], np.int64)
        return self.rows(spaces[self.memory] == space if len(self) else self.memory == 0)

    def in_units(self) -> Accesses:
        """Splits accesses into smaller accesses, which all have the same size in bytes. Two of the smaller accesses
        then overlap only if their addresses are equal.

        This is needed because arrays of several element types may share bytes of dynamic shared memory.

        Returns:
            An `Accesses` with the smaller accesses.
        """
        if not len(self):
            return self
        unit = reduce(np.gcd, (*np.unique(self.size), np.gcd.reduce(self.address - self.address.min())))
        parts = self.size // int(unit)
        split = self.rows(np.repeat(np.arange(len(self)), parts))
        within = np.arange(len(split)) - np.repeat(np.cumsum(parts) - parts, parts)
        columns = {name: getattr(split, name) for name in COLUMNS}
        columns |= {"address": split.address + within * unit, "size": np.full(len(split), unit)}
        return Accesses(self.grid, self.block, self.memories, self.places, **columns)


COLUMNS = ("memory", "address", "size", "kind", "place", "of_block", "thread", "interval")


def position(number: int, size: Dim) -> Dim:
    """Returns the position (x, y, z) of a block in its grid, or of a thread in its block.

    Args:
        number: The number of the block or thread. The position (x, y, z) has the number x + size x * (y + size y * z).
        size: The size of the grid in blocks, or of the block in threads.
    """
    x, y, _ = size
    return number % x, number // x % y, number // (x * y)
