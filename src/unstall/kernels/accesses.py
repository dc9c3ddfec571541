"""`Accesses`: each access of a kernel to memory, as columns."""

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
"""x, y, z: the size of a grid or a block, or a position in it."""


class Kind(IntEnum):
    READ = 0
    WRITE = 1
    ATOMIC = 2


class Space(IntEnum):
    GLOBAL = 0
    SHARED = 1


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a kernel, or of a function that the kernel calls."""

    file: str
    line: int
    function: str

    @property
    def at(self) -> str:
        """FILE:LINE, with a path relative to the current folder if the file is below it."""
        return f"{Shortened(str(Path.cwd()))[self.file]}:{self.line}"

    @property
    def source(self) -> str:
        """The text of the line; "" if it is not known."""
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True, slots=True)
class Memory:
    """An array that the kernel uses.

    Attributes:
        name: The name of the array in the kernel.
        space: Where the array lies.
        address: The address of the first element on this host. An array in shared memory has the same address in all
            blocks.
        shape: The shape.
        item_bytes: The size of an element.
        order: "C" if the last dimension is contiguous, "F" if the first dimension is contiguous.
    """

    name: str
    space: Space
    address: int
    shape: tuple[int, ...]
    item_bytes: int
    order: str

    def index_of(self, address: int) -> tuple[int, ...]:
        """Returns the index of the element at an address."""
        position = (address - self.address) // self.item_bytes
        index = np.unravel_index(position, self.shape, "F" if self.order == "F" else "C")
        return tuple(int(part) for part in index)


@dataclass(frozen=True, slots=True)
class Accesses:
    """All accesses of one launch. Each column has one value for each access, in the order of execution.

    Attributes:
        grid: The number of blocks.
        block: The number of threads in each block.
        memories: The arrays. `memory` has indices into them.
        places: The lines. `place` has indices into them.
        memory: The array.
        address: The address of the element on this host.
        size: The bytes of the element.
        kind: The `Kind`.
        place: The line.
        of_block: The number of the block: x + grid x * (y + grid y * z).
        thread: The number of the thread in its block, counted in the same way.
        interval: The number of barriers that the thread has passed.
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
        """Returns some of the accesses. `which` is a mask, or indices."""
        columns = (getattr(self, name)[which] for name in COLUMNS)
        return Accesses(self.grid, self.block, self.memories, self.places, *columns)

    def of(self, space: Space) -> Accesses:
        """Returns the accesses of one space."""
        spaces = np.array([each.space for each in self.memories], np.int64)
        return self.rows(spaces[self.memory] == space if len(self) else self.memory == 0)

    def in_units(self) -> Accesses:
        """Splits accesses so that all have the same size, and two accesses overlap only if their addresses are equal.

        Arrays of several types may share bytes of dynamic shared memory.
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
    """Returns the x, y, z of a thread or block, from its number."""
    x, y, _ = size
    return number % x, number // x % y, number // (x * y)
