"""Guards: facts about a program's objects that must hold before a CUDA graph is replayed. Each call checks hundreds of
facts.

The C extension `_guards.c` checks the facts. `ReferenceGuards` defines the meaning of the facts, and checks them if the
C extension was not built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any, Protocol

import torch

try:
    from unstall.fix.graphs.examine import _guards
except ImportError:
    _guards = None  # type: ignore[assignment]  # built only where there is a C compiler

EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
"""DLPack's exchange API (since version 1.3), through which C code reads the layouts of tensors. None if this version of
torch does not have it."""
_GONE = object()

Item = tuple[Any, Any, object]
"""A container, a key, and the object that the container has under this key."""
Size = tuple[Sized, int]
Attribute = tuple[object, str, object]
"""An object, an attribute's name, and its value."""
Count = tuple[object, str, int]
"""An object, the name of an attribute whose value is a container, and the number of items in this container. If the
attribute is None, the number is 0."""


class Guards(Protocol):
    def hold(self) -> bool:
        """Returns whether all facts hold. If an item is missing in its container, the fact about this item does not
        hold. Other errors that the program's own code raises during the check are raised."""

    def expect(self, place: int, value: object) -> None:
        """Replaces the expected value of the item with index `place`. Raises IndexError if there is no such item."""


class ReferenceGuards:
    """The reference implementation of `Guards`, in Python. The arguments are facts that hold now and must hold later.

    Args:
        items: Containers with keys. Each item must remain the same object.
        sizes: Containers with their numbers of items.
        attributes: Objects with names of attributes. Each value must remain the same object.
        counts: Objects with names of attributes whose values are containers, and the numbers of items of these
            containers.
        tensors: Tensors whose address, shape, strides, dtype and device must not change.
    """

    def __init__(
        self,
        items: tuple[Item, ...],
        sizes: tuple[Size, ...],
        attributes: tuple[Attribute, ...],
        counts: tuple[Count, ...],
        tensors: tuple[torch.Tensor, ...],
    ) -> None:
        self._items, self._sizes, self._attributes, self._counts = list(items), sizes, attributes, counts
        self._layouts = [(tensor, layout_of(tensor)) for tensor in tensors]

    def hold(self) -> bool:
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
        except RuntimeError:  # one is now a kind of tensor without address or strides
            return False

    def expect(self, place: int, value: object) -> None:
        if not 0 <= place < len(self._items):
            raise IndexError(f"item {place} is none of {len(self._items)}")
        container, key, _ = self._items[place]
        self._items[place] = container, key, value


def guards_of(
    *,
    items: Iterable[Item] = (),
    sizes: Iterable[Size] = (),
    attributes: Iterable[Attribute] = (),
    counts: Iterable[Count] = (),
    tensors: Iterable[torch.Tensor] = (),
) -> Guards:
    """Returns guards that store the current state of the given objects, and later check whether it is unchanged.

    Args:
        items: Items of containers. Each item must remain the same object.
        sizes: Containers. The number of items of each container must not change.
        attributes: Attributes of objects. The value of each attribute must remain the same object.
        counts: Attributes whose values are containers. The number of items of each container must not change.
        tensors: Tensors. The address, shape, strides, dtype and device of each tensor must not change.
    """
    facts = tuple(items), tuple(sizes), tuple(attributes), tuple(counts), tuple(tensors)
    return ReferenceGuards(*facts) if _guards is None else _guards.Guards(*facts, layout_of, EXCHANGE)


def item_of(container: Any, key: Any) -> Any:
    """Returns `container[key]`. Raises KeyError or IndexError if there is no such item. If an item is missing in a
    defaultdict, raises KeyError too, and adds no item to the defaultdict."""
    if isinstance(container, dict) and type(container).__getitem__ is dict.__getitem__:
        value = dict.get(container, key, _GONE)
        if value is _GONE:
            raise KeyError(key)
        return value
    return container[key]


def count_of(value: object, name: str) -> int:
    """Returns the number of items in the container that is the attribute `name` of `value`. Returns 0 if the attribute
    is None."""
    held = getattr(value, name)
    return 0 if held is None else len(held)


def layout_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Returns the address of a tensor's memory, and the properties that say how this memory is read: shape, strides,
    device, dtype, and the conjugate and negative bits. The kernels of a CUDA graph rely on these values."""
    read_as = tensor.dtype, tensor.is_conj(), tensor.is_neg()
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.device, read_as
