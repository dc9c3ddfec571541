"""Finds races among the memory accesses of a kernel.

Two accesses to the same element race if all of this holds: different threads make the accesses, at least one access
writes, at most one access is atomic, and no barrier is between the accesses.

For two threads of one block, `cuda.syncthreads()` is a barrier. Threads of different blocks have no barrier. The
threads of a warp run in no fixed order, as on all GPUs since Volta. Locks and flags in the kernel's own code do not
count as barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unstall.kernels.accesses import Accesses, Dim, Kind, Place, Space, position

_DOES = {Kind.READ: "reads", Kind.WRITE: "writes", Kind.ATOMIC: "updates atomically"}


@dataclass(frozen=True, slots=True)
class RaceSide:
    """One of the two accesses that race.

    Attributes:
        place: The line of source code that makes the access.
        does: What the access does to the element: "reads", "writes" or "updates atomically".
        block: The position (x, y, z) in the grid of the block whose thread makes the access.
        thread: The position (x, y, z) of the thread in its block.
    """

    place: Place
    does: str
    block: Dim
    thread: Dim


@dataclass(frozen=True, slots=True)
class KernelRace:
    """A race between two accesses of a kernel. The accesses are made by two lines of source code, or both by one line.

    Attributes:
        memory: The name of the array whose elements are accessed.
        space: The memory that holds the array: "shared" or "global".
        between: "threads" if two threads of the same block make the accesses. "blocks" if threads of different blocks
            make them.
        elements: The number of the array's elements for which these lines race. An element of shared memory counts once
            for each block.
        index: The index of one of these elements, as an example.
        first: An access to the example element, by the line that comes first in the source.
        second: The other access to the example element.
    """

    memory: str
    space: Literal["shared", "global"]
    between: Literal["threads", "blocks"]
    elements: int
    index: tuple[int, ...]
    first: RaceSide
    second: RaceSide

    @property
    def fix(self) -> str:
        """A text that says how to remove the race."""
        if self.between == "blocks":
            return "nothing orders blocks: give each block its own elements, use cuda.atomic, or launch a second kernel"
        if self.first.place == self.second.place:
            return (
                "let one thread write an element, use cuda.atomic, or put cuda.syncthreads() between the read and the "
                "write, and between the rounds of a loop"
            )
        return (
            "put a cuda.syncthreads() on each way from one line to the other, around a loop too, where all threads of "
            "the block reach it"
        )


def find(accesses: Accesses) -> tuple[KernelRace, ...]:
    """Returns the races among `accesses`, sorted by the positions of their lines in the source.

    Accesses that race at many elements count as one race if they agree in their two lines, in their two kinds of access
    (read, write or atomic update), in the array, and in whether the threads belong to one block.
    """
    units = accesses.in_units()
    shared, of_grid = units.of(Space.SHARED), units.of(Space.GLOBAL)
    found = [
        *_races(shared, (shared.of_block, shared.interval, shared.address), shared.thread, "threads"),
        *_races(of_grid, (of_grid.of_block, of_grid.interval, of_grid.address), of_grid.thread, "threads"),
        *_races(of_grid, (of_grid.address,), of_grid.of_block, "blocks"),
    ]
    return tuple(sorted(found, key=lambda race: (_order(race.first), _order(race.second))))


def _order(side: RaceSide) -> tuple[str, int, str]:
    return side.place.file, side.place.line, side.does


def _races(
    rows: Accesses, together: Sequence[np.ndarray], who: np.ndarray, between: Literal["threads", "blocks"]
) -> Iterator[KernelRace]:
    """Yields the races between accesses of different threads, or between accesses of different blocks.

    Only accesses that are equal in all columns of `together` can race. Of these, the accesses with the same line and
    the same kind (read, write or atomic) form a class. Two classes race if their kinds conflict, and if not all of
    their accesses are made by the same thread (or block). To find out, it is enough to compare the lowest and the
    highest number in `who` of each class.

    Args:
        rows: The accesses.
        together: Arrays with one value for each access, such as the address. Two accesses can race only if they have
            equal values in all of these arrays.
        who: For each access, the number of its thread ("threads") or of its block ("blocks").
        between: "threads" if `who` has the numbers of threads. "blocks" if `who` has the numbers of blocks.
    """
    if not len(rows):
        return
    order = np.lexsort((who, rows.kind, rows.place, *together))
    sorted_rows, who = rows.rows(order), who[order]
    groups = _starts(*(column[order] for column in together))
    starts = np.flatnonzero(groups | _starts(sorted_rows.place, sorted_rows.kind))
    ends = np.append(starts[1:], len(order)) - 1
    one, other = _pairs_within(np.cumsum(groups)[starts])
    kinds = sorted_rows.kind[starts]
    clash = ((kinds[one] == Kind.WRITE) | (kinds[other] == Kind.WRITE)) | (kinds[one] != kinds[other])
    apart = who[starts[one]] != who[ends[other]]
    clash &= apart | (who[ends[one]] != who[starts[other]])
    left = np.where(apart, starts[one], ends[one])[clash]
    right = np.where(apart, ends[other], starts[other])[clash]
    lines = np.array([rows.places[each].line for each in range(len(rows.places))])
    swap = lines[sorted_rows.place[left]] > lines[sorted_rows.place[right]]
    left, right = np.where(swap, right, left), np.where(swap, left, right)
    keys = np.stack(
        [column[side] for side in (left, right) for column in (sorted_rows.memory, sorted_rows.place, sorted_rows.kind)]
    )
    for key in np.unique(keys, axis=1).T:
        same = np.flatnonzero((keys == key[:, None]).all(axis=0))
        addresses = sorted_rows.address[left[same]]
        blocks = sorted_rows.of_block[left[same]] if between == "threads" else np.zeros(len(same), np.int64)
        at = same[np.lexsort((addresses, blocks))[0]]
        memory = rows.memories[int(key[0])]
        units = len(np.unique(np.stack([blocks, addresses]), axis=1).T)
        yield KernelRace(
            memory.name,
            "shared" if memory.space is Space.SHARED else "global",
            between,
            max(1, units * int(rows.size[0]) // memory.item_bytes),
            memory.index_of(int(sorted_rows.address[left[at]])),
            _side(sorted_rows, int(left[at])),
            _side(sorted_rows, int(right[at])),
        )


def _starts(*columns: np.ndarray) -> np.ndarray:
    """Returns a boolean mask of the rows at which a new group of equal rows begins. This is the first row, and each row
    that differs in some column from the row before it.

    `columns` are arrays of one length, which have one value for each row.
    """
    differs = np.zeros(len(columns[0]), bool)
    differs[0] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return differs


def _pairs_within(group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns `(i, j)`: two arrays with the row numbers of all pairs of rows in the same group, with i <= j.

    `group` has the group number of each row, in ascending order.
    """
    ones, others = [], []
    for step in range(int(np.bincount(group).max())):
        one = np.flatnonzero(group[: len(group) - step] == group[step:])
        ones.append(one)
        others.append(one + step)
    return np.concatenate(ones), np.concatenate(others)


def _side(rows: Accesses, row: int) -> RaceSide:
    return RaceSide(
        rows.places[int(rows.place[row])],
        _DOES[Kind(int(rows.kind[row]))],
        position(int(rows.of_block[row]), rows.grid),
        position(int(rows.thread[row]), rows.block),
    )
