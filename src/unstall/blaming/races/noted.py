"""Collects the races that were found. All races between the same two lines count as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unstall.blaming.names import stream_name
from unstall.blaming.races.stacks import Stack, lines_of
from unstall.blaming.result import Race, RaceSide
from unstall.race_words import TITLES, fix_of, name_of
from unstall.timeline.columns import RaceKind

_MOST = 1000
"""The largest number of pairs of lines for which races are stored."""


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One operation on memory, on a stream or by the host.

    Attributes:
        stream: The stream's handle. For the default stream of device N, which has no handle: -N.
            For the host: None.
        number: How many operations came before this one, on all streams.
        operator: The operator's name.
        stack: The lines of the user's code that launched the operation, innermost first. For an
            operation in a CUDA graph, the lines that captured it.
        backward: Whether the operation belongs to a backward pass.
        replayed: For an operation in a CUDA graph, the lines that launched the graph, innermost
            first. Empty for all other operations.
    """

    stream: int | None
    number: int
    operator: str
    stack: Stack
    backward: bool = False
    replayed: Stack = ()


@dataclass(slots=True)
class _Pair:
    kind: RaceKind
    earlier: RaceSide
    later: RaceSide
    size_bytes: int
    freed: Stack
    last: Work
    count: int = 1


class NotedRaces:
    """Collects races. All races between the same two lines count as one. The constructor's
    `changed` is called when a race is found between two lines that had no race before.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._pairs: dict[tuple[object, object], _Pair] = {}
        self._changed = changed

    def note(self, kind: RaceKind, earlier: Work, later: Work, size_bytes: int, freed: Stack = ()) -> None:
        """Adds a race between two operations.

        Args:
            kind: How the operations use the same memory.
            earlier: The operation that was issued first.
            later: The operation that was issued second.
            size_bytes: How many bytes both operations use.
            freed: The lines of the user's code that freed the memory between the two operations; ()
                if it was not freed.
        """
        key = earlier.stack[:1] or earlier.operator, later.stack[:1] or later.operator
        pair = self._pairs.get(key)
        if pair is None:
            if len(self._pairs) >= _MOST:
                return
            self._pairs[key] = _Pair(kind, _side(earlier), _side(later), size_bytes, freed, later)
            self._changed()
            return
        pair.count += pair.last is not later
        pair.last = later
        pair.size_bytes = max(pair.size_bytes, size_bytes)

    def races(self) -> tuple[Race, ...]:
        """Returns the races that were added, in the order in which they were added."""
        return tuple(
            Race(
                kind=name_of(pair.kind),
                title=TITLES[pair.kind],
                earlier=pair.earlier,
                later=pair.later,
                bytes=pair.size_bytes,
                count=pair.count,
                freed_at=next(iter(lines_of(pair.freed[:1])), None),
                fix=fix_of(pair.kind, pair.earlier.stream, pair.later.stream),
            )
            for pair in self._pairs.values()
        )


def _side(work: Work) -> RaceSide:
    lines = lines_of(work.stack)
    return RaceSide(
        where=lines[0] if lines else None,
        called_from=lines[1:],
        operator=work.operator,
        stream=None if work.stream is None else stream_name(max(work.stream, 0), device=max(-work.stream, 0)),
        backward=work.backward,
        replayed=next(iter(lines_of(work.replayed[:1])), None),
    )
