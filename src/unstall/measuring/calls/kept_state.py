"""The state that a function keeps from one call to the next: arrays, containers, caches and
iterators, with their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unstall.measuring.adapters import Adapter
from unstall.measuring.calls.function_call import CONTAINERS, FunctionCall


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state that a function keeps from one call to the next, as it is at one moment. This
    object keeps references to the arrays and containers, so that the `id()` of such an object stays
    unique.

    Attributes:
        arrays: Maps the name of an array to the array.
        sizes: Maps the name of a container to (container, number of items).
        hits: Maps the name of a function with an `lru_cache` to the number of cache hits.
        iterators: The names of iterators.
    """

    arrays: dict[str, object]
    sizes: dict[str, tuple[object, int]]  # of containers
    hits: dict[str, int]  # of functions with a cache: how often it was used
    iterators: tuple[str, ...]

    @staticmethod
    def of(call: FunctionCall, adapter: Adapter) -> KeptState:
        known = call.known()
        return KeptState(
            arrays={name: value for name, value in known if adapter.holds(value)},
            sizes={name: (value, len(value)) for name, value in known if isinstance(value, CONTAINERS)},
            hits=dict(_hits([(call.label(), call.fn), *known])),
            iterators=tuple(name for name, value in known if isinstance(value, Iterator)),
        )

    def replaced(self, after: KeptState) -> tuple[str, ...]:
        """Returns the names that stand for another array in the later state `after`."""
        return tuple(name for name, value in self.arrays.items() if after.arrays.get(name, value) is not value)

    def resized(self, after: KeptState) -> tuple[str, ...]:
        """Returns the names of containers whose number of items is different in the later state `after`."""
        both = ((name, self.sizes[name], after.sizes[name]) for name in self.sizes if name in after.sizes)
        return tuple(name for name, (one, size), (other, now) in both if one is other and size != now)

    def found(self, after: KeptState) -> tuple[str, ...]:
        """Returns the names of functions with an `lru_cache` that had cache hits between this state
        and the later state `after`.
        """
        return tuple(name for name, hits in after.hits.items() if hits > self.hits.get(name, hits))


def _hits(values: list[tuple[str, object]]) -> Iterator[tuple[str, int]]:
    for name, value in values:
        info = getattr(value, "cache_info", None)  # functools.lru_cache
        if callable(info) and callable(value):
            hits = getattr(info(), "hits", None)
            if isinstance(hits, int):
                yield name, hits
