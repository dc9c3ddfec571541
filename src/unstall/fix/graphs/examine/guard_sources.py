"""Mappings for guards. A guard reads a value by its key, as from a dict or a list. The classes here give keys to other
values: the variables of closures, attributes in `__slots__`, and the contents of an object as one value.

Guards compare the identities of objects. Reading the contents of an object may make a new object each time. So
`Contents` returns the same object as long as the contents are equal.
"""

from __future__ import annotations

import array
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MOST_BYTES = 1 << 16
_MOST_ITEMS = 20_000


class Cells:
    """The closure of a function, as a mapping from the names of the closure's variables to their values."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> object:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # not assigned yet
            return None

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)


class Attributes:
    """The attributes of an object that are in `__slots__`, as a mapping from names to values."""

    def __init__(self, value: object) -> None:
        self._value = value
        members = [vars(base) for base in type(value).__mro__ if "__slots__" in vars(base)]
        self._members = {
            name: member
            for names in members
            for name, member in names.items()
            if isinstance(member, types.MemberDescriptorType)
        }

    def __getitem__(self, name: str) -> object:
        try:
            return self._members[name].__get__(self._value)
        except AttributeError:  # not assigned yet
            return None

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)


class Contents:
    """All contents of an object as one value, such as a frozenset for a set. `contents[0]` returns this value. As long
    as the contents stay equal, it returns the same object."""

    def __init__(
        self, value: object, read: Callable[[Any], Any], same: Callable[[Any, Any], bool] = operator.eq
    ) -> None:
        self._value, self._read, self._same = value, read, same
        self._held = read(value)

    def __getitem__(self, _: int) -> object:
        now = self._read(self._value)
        if not self._same(now, self._held):
            self._held = now
        return self._held


def contents_of(value: object, *, of_host_tensors: bool) -> Contents | None:
    """Returns a view of an object's contents, which guards compare as a whole. Such views exist only for some types,
    such as sets. Returns None for objects of all other types, and for objects that are too large to be compared before
    each call.

    If `of_host_tensors` is True, the contents of a CPU tensor are its version counter. If False, returns None for CPU
    tensors.
    """
    if isinstance(value, torch.Tensor):
        guarded = of_host_tensors and value.device.type == "cpu" and not value.is_inference()
        return Contents(value, operator.attrgetter("_version")) if guarded else None
    if isinstance(value, (set, frozenset)):
        return Contents(value, frozenset)
    if isinstance(value, dict):
        return Contents(value, lambda held: tuple(held.values()), _same_items) if len(value) <= _MOST_ITEMS else None
    if isinstance(value, list):
        return Contents(value, tuple, _same_items) if len(value) <= _MOST_ITEMS else None
    if isinstance(value, (bytearray, array.array)):
        return Contents(value, bytes) if len(value) <= _MOST_BYTES else None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.nbytes <= _MOST_BYTES:
        return Contents(value, lambda held: held.tobytes())
    return None


def _same_items(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))
