"""Whether facts about a program's objects are as they were: a question of every call of a graph, for hundreds of them.

It is asked in C (`_unchanged.c`) where that was built. `UnchangedTwin` is the definition of what that answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch

try:
    from unstall.fix.graphs.look import _unchanged
except ImportError:
    _unchanged = None  # type: ignore[assignment]  # built only where there is a C compiler

EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
"""By which C reads where a tensor lies, in DLPack from 1.3 on."""
_GONE = object()

Item = tuple[Any, Any, Any]
"""A container, a key, and the very object that is there."""


class Unchanged(Protocol):
    def holds(self) -> bool:
        """Whether all is as it was. Exceptions of the program's own code go through, but for a KeyError or an
        IndexError of an item: it is gone."""

    def expect(self, place: int, value: Any) -> None:
        """Another object in an item from now on. IndexError where there is no such item."""


class UnchangedTwin:
    """What `unchanged` is asked to make, in Python."""

    def __init__(
        self,
        items: tuple[Item, ...],
        sizes: tuple[tuple[Any, int], ...],
        attributes: tuple[tuple[Any, str, Any], ...],
        counts: tuple[tuple[Any, str, int], ...],
        tensors: tuple[torch.Tensor, ...],
    ) -> None:
        self._items, self._sizes, self._attributes, self._counts = list(items), sizes, attributes, counts
        self._layouts = [(tensor, layout_of(tensor)) for tensor in tensors]

    def holds(self) -> bool:
        try:
            if any(item_of(container, key) is not value for container, key, value in self._items):
                return False
        except (KeyError, IndexError):
            return False
        return (
            all(len(container) == size for container, size in self._sizes)
            and all(getattr(each, name) is value for each, name, value in self._attributes)
            and all(count_of(each, name) == size for each, name, size in self._counts)
            and self._layouts_hold()
        )

    def _layouts_hold(self) -> bool:
        try:
            return all(layout_of(tensor) == layout for tensor, layout in self._layouts)
        except RuntimeError:  # by now one is of a kind that torch does not say this of
            return False

    def expect(self, place: int, value: Any) -> None:
        if not 0 <= place < len(self._items):
            raise IndexError(f"item {place} is none of {len(self._items)}")
        container, key, _ = self._items[place]
        self._items[place] = container, key, value


def unchanged(
    *,
    items: Iterable[Item] = (),
    sizes: Iterable[tuple[Any, int]] = (),
    attributes: Iterable[tuple[Any, str, Any]] = (),
    counts: Iterable[tuple[Any, str, int]] = (),
    tensors: Iterable[torch.Tensor] = (),
) -> Unchanged:
    """`sizes`: containers, and how many items they have. `attributes`: objects, a name, and the very object that is
    there. `counts`: objects, a name, and how many items that attribute has, None having none. `tensors` are to lie
    where they lie now, with the same shape, strides and dtype."""
    facts = tuple(items), tuple(sizes), tuple(attributes), tuple(counts), tuple(tensors)
    return UnchangedTwin(*facts) if _unchanged is None else _unchanged.Unchanged(*facts, layout_of, EXCHANGE)


def item_of(container: Any, key: Any) -> Any:
    """Raises KeyError or IndexError where it is gone; a dict that makes what is missing is not asked to."""
    if isinstance(container, dict) and type(container).__getitem__ is dict.__getitem__:
        value = dict.get(container, key, _GONE)
        if value is _GONE:
            raise KeyError(key)
        return value
    return container[key]


def count_of(value: Any, name: str) -> int:
    """How many items an attribute has; None has none."""
    held = getattr(value, name)
    return 0 if held is None else len(held)


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What kernels are given of a tensor: an address, and how to read what is there."""
    read_as = tensor.dtype, tensor.is_conj(), tensor.is_neg()
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device, read_as
