"""Finds races in pinned host memory, which a copy may still use after the call that started the copy has returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unstall.blaming.races.device_memory import Ordered
from unstall.blaming.races.noted import NotedRaces, Work
from unstall.blaming.races.spans import Span
from unstall.timeline.columns import RaceKind


class _Copy(NamedTuple):
    span: Span
    write: bool
    work: Work
    storage: Any  # weak: torch gives a pinned block out again only once its copies have ended


class HostMemory:
    """A history of the copies from or to pinned host memory that may still be running. Compares
    each use of host memory with these copies, and records the races between them.
    """

    def __init__(self, ordered: Ordered, has_ended: Callable[[Work], bool], noted: NotedRaces) -> None:
        """Makes an empty history of copies.

        Args:
            ordered: A function (first, second) that returns whether the operation `first` has
                surely ended before the operation `second` begins. Each of the two may run on a
                stream or on the host.
            has_ended: A function that returns whether the host has waited for an operation.
            noted: The collection to which races are added.
        """
        self._ordered, self._has_ended, self._noted = ordered, has_ended, noted
        self._copies: list[_Copy] = []

    @property
    def is_used(self) -> bool:
        """Whether any copy may still be running."""
        return bool(self._copies)

    def copies(self, span: Span, work: Work, storage: Any, *, write: bool) -> None:
        """Records a copy that was put on a stream, from or to host memory.

        Args:
            span: The bytes of host memory that the copy uses.
            work: The copy.
            storage: A weak reference to the storage of the tensor in host memory.
            write: Whether the copy writes the host memory. If false, the copy only reads the host
                memory.
        """
        self._drop_ended()
        left = []
        for copy in self._copies:  # whatever waits for this copy waits for those before it on its stream, too
            replaced = copy.work.stream == work.stream and (write or not copy.write)
            left += [copy._replace(span=part) for part in copy.span.without(span)] if replaced else [copy]
        self._copies = [*left, _Copy(span, write, work, storage)]

    def used(self, span: Span, work: Work, *, write: bool) -> None:
        """Compares a use of host memory with the copies that may still be running, to find races.
        The use may be by the host or by a copy.

        Args:
            span: The bytes of host memory that are used.
            work: The operation that uses the bytes.
            write: Whether the operation writes the bytes. If false, it only reads the bytes.
        """
        self._drop_ended()
        for copy in self._copies:
            if not (write or copy.write) or not copy.span.touches(span) or self._ordered(copy.work, work):
                continue
            kind = RaceKind.OVERWRITTEN_EARLY
            if copy.write:
                kind = RaceKind.WRITTEN_TWICE if write else RaceKind.READ_EARLY
            size = min(copy.span.end, span.end) - max(copy.span.start, span.start)
            self._noted.note(kind, copy.work, work, size)

    def _drop_ended(self) -> None:
        self._copies = [copy for copy in self._copies if not copy.storage.expired() and not self._has_ended(copy.work)]
