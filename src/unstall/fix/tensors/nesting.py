"""Tensors in nested containers: tuples, named tuples, lists, mappings and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from torch.nn.utils.rnn import PackedSequence

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Nest = TypeVar("Nest")
"""The type of a tensor, or of nested containers of tensors."""


@overload
def map_tensors(value: Nest, change: Callable[[torch.Tensor], torch.Tensor]) -> Nest: ...
@overload
def map_tensors(value: object, change: Callable[[torch.Tensor], object]) -> Any: ...
def map_tensors(value: object, change: Callable[[torch.Tensor], Any]) -> object:
    """Replaces each tensor in nested containers by `change(tensor)`. `change` is called in the order of the tensors.

    A container with changed tensors is replaced by a copy of the same type, except that a mapping that cannot be
    written to is replaced by a dict. The constructor of a user's type is not called, because it may have side effects.
    Other objects are returned unchanged. The `batch_sizes` of a `PackedSequence` are not changed, because they must
    stay on the CPU.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, PackedSequence):  # a tuple too
        data = change(value.data)
        order = [map_tensors(indices, change) for indices in (value.sorted_indices, value.unsorted_indices)]
        return PackedSequence(data, value.batch_sizes, *order)
    if isinstance(value, (tuple, list)):
        items = [change(item) if isinstance(item, torch.Tensor) else map_tensors(item, change) for item in value]
        if all(map(operator.is_, items, value)):
            return value
        return _tuple(value, items) if isinstance(value, tuple) else _list(value, items)
    if isinstance(value, Mapping):
        return _mapping(value, {key: map_tensors(item, change) for key, item in value.items()})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, change)
    return value


def tensors_in(value: object) -> list[torch.Tensor]:
    """Returns all tensors in `value`, in order. `value` is a tensor, or nested containers of tensors and other
    objects."""
    found: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, keep)
    return found


def _tuple(value: tuple[object, ...], items: list[object]) -> object:
    if type(value) is tuple:
        return tuple(items)
    try:
        other = tuple.__new__(type(value), items)
    except TypeError:  # a C struct sequence, such as the result of torch.max(): its constructor takes the items
        return type(value)(items)
    if hasattr(value, "__dict__"):
        vars(other).update(vars(value))
    return other


def _list(value: list[object], items: list[object]) -> list[object]:
    if type(value) is list:
        return items
    other = copy.copy(value)  # with the other attributes of its type
    list.__setitem__(other, slice(None), items)
    return other


def _mapping(value: Mapping[object, object], items: dict[object, object]) -> object:
    if all(items[key] is value[key] for key in items):
        return value
    if type(value) is dict:
        return items
    if isinstance(value, MappingProxyType):
        return MappingProxyType(items)
    # A copy keeps other attributes: the default of a defaultdict, the encodings of a tokenizer's batch.
    other = _shallow(value)
    try:
        for key, item in items.items():
            other[key] = item
    except TypeError:  # it cannot be written to
        return items
    return other


def _shallow(value: Mapping[object, object]) -> Any:
    """Returns a copy of a mapping. A change to the copy does not change the original. This is true even if the mapping
    stores its items in an inner mapping."""
    other = copy.copy(value)
    if isinstance(value, dict) or not hasattr(other, "__dict__"):
        return other
    for name, held in vars(other).items():
        if isinstance(held, MutableMapping) and held is vars(value).get(name):
            vars(other)[name] = copy.copy(held)
    return other


def _dataclass(value: DataclassInstance, change: Callable[[torch.Tensor], Any]) -> object:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    old = {name: getattr(value, name) for name in names}
    new = {name: map_tensors(item, change) for name, item in old.items()}
    if all(new[name] is old[name] for name in old):
        return value
    other = copy.copy(value)
    for name, item in new.items():
        object.__setattr__(other, name, item)
    return other
