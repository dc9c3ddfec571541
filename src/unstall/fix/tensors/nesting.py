"""Tensors in whatever they come in: tuples, named tuples, lists, mappings, dataclasses, deep in one another."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same nest with `change` of each tensor in its place, in the order in which they stand.

    A container without a tensor in it is handed through as it is; others are made anew, of their own type, and never
    by its constructor, which may do anything. What is no container, say a string, is handed through too. The lengths in
    a `PackedSequence` stay: they must be on the CPU.
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


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors of a nest, in order."""
    found: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, keep)
    return found


def _tuple(value: tuple[Any, ...], items: list[Any]) -> Any:
    if type(value) is tuple:
        return tuple(items)
    try:
        other = tuple.__new__(type(value), items)
    except TypeError:  # what torch.max() gives, and other structs in C: these take the items
        return type(value)(items)
    if hasattr(value, "__dict__"):
        vars(other).update(vars(value))
    return other


def _list(value: list[Any], items: list[Any]) -> Any:
    if type(value) is list:
        return items
    other = copy.copy(value)  # with what else its type holds
    list.__setitem__(other, slice(None), items)
    return other


def _mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if all(items[key] is value[key] for key in items):
        return value
    if type(value) is dict:
        return items
    if isinstance(value, MappingProxyType):
        return MappingProxyType(items)
    # A copy keeps what else its type holds: the default of a defaultdict, the encodings of a tokenizer's batch.
    other = _shallow(value)
    try:
        for key, item in items.items():
            other[key] = item
    except TypeError:  # it cannot be written to
        return items
    return other


def _shallow(value: Mapping[Any, Any]) -> Any:
    """A copy that may be written to while the mapping stays as it is: that of a type which keeps its items in a dict of
    its own would share this one."""
    other = copy.copy(value)
    if isinstance(value, dict) or not hasattr(other, "__dict__"):
        return other
    for name, held in vars(other).items():
        if isinstance(held, MutableMapping) and held is vars(value).get(name):
            vars(other)[name] = copy.copy(held)
    return other


def _dataclass(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    old = {name: getattr(value, name) for name in names}
    new = {name: map_tensors(item, change) for name, item in old.items()}
    if all(new[name] is old[name] for name in old):
        return value
    other = copy.copy(value)
    for name, item in new.items():
        object.__setattr__(other, name, item)
    return other
