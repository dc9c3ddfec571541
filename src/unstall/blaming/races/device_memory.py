"""Finds races in device memory. For this purpose, remembers the last uses of memory, even after
another tensor has got the memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from unstall.blaming.races.noted import NotedRaces, Work
from unstall.blaming.races.spans import Span
from unstall.blaming.races.stacks import Stack
from unstall.timeline.columns import RaceKind

_MOST_USES = 64
"""How many uses of one block are remembered. For example, operations may use different parts of a large tensor."""
_MOST_FREED = 20_000

Ordered = Callable[[Work, Work], bool]
"""A function (first, second) that returns whether the work `first` has surely ended before the work `second` begins."""


class Use(NamedTuple):
    """A use of device memory by one operation.

    Attributes:
        span: The bytes that the operation used.
        write: Whether the operation wrote the bytes. If false, the operation only read the bytes.
        work: The operation.
    """

    span: Span
    write: bool
    work: Work


@dataclass(slots=True)
class _Block:
    """A block of memory that the caching allocator allocated.

    Attributes:
        start: The block's address.
        home: The stream for which the block was allocated; None if the stream is not known.
    """

    start: int
    home: int | None
    end: int = 0  # unknown until it is used
    uses: list[Use] = field(default_factory=list)
    recorded: set[int] = field(default_factory=set)  # streams of record_stream()
    before: list[tuple[Use, Stack]] = field(default_factory=list)  # by tensors that had the memory, and their free
    checked: set[int] = field(default_factory=set)  # streams that were compared with those


class _Freed(NamedTuple):
    start: int
    end: int
    home: int | None
    uses: tuple[tuple[Use, Stack], ...]


class DeviceMemory:
    """A history of the uses of device memory. Compares each use with earlier uses of the same
    bytes, and records the races between them.
    """

    def __init__(self, ordered: Ordered, noted: NotedRaces) -> None:
        self._ordered, self._noted = ordered, noted
        self._blocks: dict[int, _Block] = {}
        self._freed: dict[int, _Freed] = {}  # they do not overlap
        self._starts: list[int] = []  # sorted keys of the same

    def allocated(self, start: int, stream: int | None) -> None:
        """Records that torch's allocator has allocated a block of memory.

        Args:
            start: The address of the block.
            stream: The stream for whose work the block was allocated; None if it is not known.
        """
        self._blocks[start] = _Block(start, stream)

    def record_stream(self, start: int, stream: int) -> None:
        """Records a call of `Tensor.record_stream`.

        From now on, after the block is freed, torch's allocator reuses the block only when the work
        on `stream` is done.

        Args:
            start: The address of the block of memory that the tensor uses.
            stream: The stream with which the method was called.
        """
        if start in self._blocks:
            self._blocks[start].recorded.add(stream)

    def freed(self, start: int, stack: Stack) -> None:
        """Records that a block of memory was freed. Later work on the stream for which the block
        was allocated may reuse the memory immediately.

        Args:
            start: The address of the block.
            stack: The lines of the user's code that freed the block.
        """
        block = self._blocks.pop(start, None)
        if block is None or block.home is None or not block.end:
            return
        held_back = block.recorded - {block.home}
        # Autograd calls record_stream() itself, unseen, for gradients that cross streams.
        uses = [
            (use, stack)
            for use in block.uses
            if use.work.stream not in held_back and not (use.work.backward and use.work.stream != block.home)
        ]
        self._keep(_Freed(block.start, block.end, block.home, tuple(_last(uses))))

    def used(self, start: int, end: int, use: Use) -> None:
        """Records a use of a block of memory, and each race of this use with an earlier use of the
        same bytes.

        Args:
            start: The address of the block.
            end: The address after the last byte of the block.
            use: The use.
        """
        block = self._blocks.get(start)
        if block is None:
            block = self._blocks[start] = _Block(start, None)
        if not block.end:
            block.before = self._taken(start, end, block.home)
        block.end = max(block.end, end)
        self._compare_with_before(block, use)
        kept: list[Use] = []
        for earlier in block.uses:
            conflicts = (use.write or earlier.write) and earlier.span.touches(use.span)
            if conflicts and not self._ordered(earlier.work, use.work):
                self._noted.note(_kind(earlier, use), earlier.work, use.work, _shared(earlier.span, use.span))
            kept += _still_matters(earlier, use)
        kept.append(use)
        block.uses = kept[-_MOST_USES:]

    def _compare_with_before(self, block: _Block, use: Use) -> None:
        stream = use.work.stream
        if not block.before or stream is None or stream in block.checked:
            return
        block.checked.add(stream)
        for earlier, freed in block.before:
            if not self._ordered(earlier.work, use.work):
                kind = RaceKind.TAKEN_EARLY if earlier.work.stream == block.home else RaceKind.REUSED
                self._noted.note(kind, earlier.work, use.work, _shared(earlier.span, use.span), freed)

    def _taken(self, start: int, end: int, home: int | None) -> list[tuple[Use, Stack]]:
        """Returns the uses of a block's memory by earlier tensors that have been freed, each with
        the lines that freed the tensor.

        Only freed blocks whose stream was `home` count. The allocator cannot give memory of one
        stream directly to another stream: it first returns the memory to the driver, and the driver
        waits for all work.
        """
        return [use for freed in self._overlapping(start, end) if freed.home == home for use in freed.uses]

    def _overlapping(self, start: int, end: int) -> list[_Freed]:
        first = bisect_right(self._starts, start)
        if first and self._freed[self._starts[first - 1]].end > start:
            first -= 1
        return [self._freed[at] for at in self._starts[first : bisect_left(self._starts, end)]]

    def _keep(self, freed: _Freed) -> None:
        """Stores a freed block. Removes the bytes of this block from older freed blocks."""
        older = self._overlapping(freed.start, freed.end)
        for each in older:
            self._remove(each.start)
        for each in older:
            if each.start < freed.start:
                self._insert(each._replace(end=freed.start))
            if each.end > freed.end:
                self._insert(each._replace(start=freed.end))
        same = [use for each in older if each.home == freed.home for use in each.uses]
        self._insert(freed._replace(uses=tuple(_last([*same, *freed.uses]))))
        if len(self._starts) > _MOST_FREED:
            self._remove(next(iter(self._freed)))

    def _insert(self, freed: _Freed) -> None:
        self._starts.insert(bisect_left(self._starts, freed.start), freed.start)
        self._freed[freed.start] = freed

    def _remove(self, start: int) -> None:
        del self._freed[start]
        del self._starts[bisect_left(self._starts, start)]


def _last(uses: Iterable[tuple[Use, Stack]]) -> list[tuple[Use, Stack]]:
    """Returns the last use by each stream. All other uses in `uses` by the same stream come before its last use."""
    last: dict[int | None, tuple[Use, Stack]] = {}
    for use, stack in uses:
        known = last.get(use.work.stream)
        if known is None or known[0].work.number <= use.work.number:
            last[use.work.stream] = use, stack
    return list(last.values())


def _still_matters(earlier: Use, use: Use) -> list[Use]:
    """Returns the parts of `earlier` that must be compared with future uses.

    `use` comes after `earlier`, and future uses come after `use`.
    """
    if use.work.stream != earlier.work.stream or (earlier.write and not use.write):
        return [earlier]
    return [earlier._replace(span=span) for span in earlier.span.without(use.span)]


def _kind(earlier: Use, later: Use) -> RaceKind:
    if not earlier.write:
        return RaceKind.OVERWRITTEN_EARLY
    return RaceKind.WRITTEN_TWICE if later.write else RaceKind.READ_EARLY


def _shared(first: Span, second: Span) -> int:
    return max(0, min(first.end, second.end) - max(first.start, second.start))
