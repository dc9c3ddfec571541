"""Python-side state that a function can reach: noticed when it changes, since a graph keeps what it was.

Walked are closures, globals that the code names, `self`, what these hold, and so on; from all that, only what code
that ran has names for is watched. Attributes, items and closure cells are slots: a container, and a key in it.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from unstall.locate.frameworks import is_framework

_MOST_SLOTS = 50_000
_LONG = 2_000  # items of a list or dict: it is data, and only its length is watched
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MODULE_DICTS = {name for name, value in vars(torch.nn.Module()).items() if isinstance(value, (dict, set))}
_LEAVES = (torch.Tensor, torch.Generator, types.ModuleType, type, types.BuiltinFunctionType)


class Cells:
    """A function's closure as a container, so that cells are read as all other slots are."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # not assigned yet
            return None

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)


class Watch:
    """Slots with what they held. It keeps that alive, so that no address of a thing that is gone is compared."""

    def __init__(self, roots: list[Any]) -> None:
        self.complete = True
        self._containers: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._labels: list[str] = []
        self._sized: list[Any] = []
        self._sizes: list[int] = []
        self._size_labels: list[str] = []
        self._empty: list[Any] = []  # containers that held nothing, as most modules' hooks: quicker to ask than sizes
        self._empty_labels: list[str] = []
        self._walk(roots)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [value for value in self._values if isinstance(value, torch.Tensor)]

    def limited_to(self, names: frozenset[str] | None) -> Watch:
        """Only the slots that code with these names could read. None: all."""
        if names is None:
            return self
        other = Watch([])
        other.complete = self.complete
        slots = zip(self._containers, self._keys, self._values, self._labels, strict=True)
        # Items of a list, and those by a key that is no text, are read by no name.
        kept = [slot for slot in slots if not isinstance(slot[1], str) or slot[1] in names or slot[3].endswith("]")]
        for parts, column in zip(
            zip(*kept, strict=True), (other._containers, other._keys, other._values, other._labels), strict=False
        ):
            column.extend(parts)
        other._sized, other._sizes, other._size_labels = self._sized, self._sizes, self._size_labels
        other._empty, other._empty_labels = self._empty, self._empty_labels
        return other

    def unchanged(self) -> bool:
        """The question of every call: one comparison of identities a slot, all of them in C."""
        try:
            if (
                not any(self._empty)
                and all(map(operator.is_, map(operator.getitem, self._containers, self._keys), self._values))
                and all(map(operator.eq, map(len, self._sized), self._sizes))
            ):
                return True
        except (KeyError, IndexError):
            return False
        return not self.changes(first=True)

    def changes(self, *, first: bool = False) -> list[str]:
        """What is different now, in words. A value that is equal but another object is taken over as unchanged."""
        found: list[str] = []
        for place, (container, key) in enumerate(zip(self._containers, self._keys, strict=True)):
            old = self._values[place]
            try:
                new = container[key]
            except (KeyError, IndexError):
                found.append(f"{self._labels[place]} is gone")
            else:
                if new is old:
                    continue
                if type(new) is type(old) and _plain(old) and (new == old or (new != new and old != old)):
                    self._values[place] = new
                    continue
                found.append(_difference(self._labels[place], old, new))
            if first:
                return found
        labels, containers = self._size_labels + self._empty_labels, self._sized + self._empty
        for label, container, size in zip(labels, containers, self._sizes + [0] * len(self._empty), strict=True):
            if len(container) != size:
                found.append(f"{label} had {size} items and has {len(container)}")
                if first:
                    return found
        return found

    def _walk(self, roots: list[Any]) -> None:
        seen: set[int] = set()
        # Depth first in the order of the roots; the last entry is next.
        todo: list[tuple[str, Any]] = [("", root) for root in reversed(roots)]
        while todo:
            label, value = todo.pop()
            if isinstance(value, (*_SCALARS, *_LEAVES)) or id(value) in seen:
                continue
            seen.add(id(value))
            for part, child in reversed(self._open(label, value)):
                todo.append((part, child))
            if len(self._keys) > _MOST_SLOTS:
                self.complete = False
                return

    def _open(self, label: str, value: Any) -> list[tuple[str, Any]]:
        """Notes the slots of one object; gives what is in them. Code of the user's own is not run by that."""
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return [(value.__func__.__name__, value.__func__), ("self", value.__self__)]
        if isinstance(value, dict):
            if type(value).__len__ is not dict.__len__:
                return []
            self._size(label, value)
            if len(value) > _LONG or type(value).__getitem__ is not dict.__getitem__:
                return []
            return self._slots(value, [(key, f"{label}[{_shown(key)}]") for key in value])
        if isinstance(value, list):
            if type(value).__getitem__ is not list.__getitem__ or type(value).__len__ is not list.__len__:
                return []
            self._size(label, value)
            return [] if len(value) > _LONG else self._slots(value, [(i, f"{label}[{i}]") for i in range(len(value))])
        if isinstance(value, (tuple, set, frozenset)):
            return [(f"{label}[…]", item) for item in value] if len(value) <= _LONG else []
        if type(value).__module__.startswith("unstall."):  # ours changes with each call; what it wraps is the user's
            wrapped = getattr(value, "__wrapped__", None) or getattr(value, "_module", None)
            return [(label, wrapped)] if wrapped is not None else []
        try:
            state = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return []
        if isinstance(value, torch.nn.Module):
            return self._module(label, value, state)
        inside = self._slots(state, [(key, f"{label}.{key}" if label else str(key)) for key in state])
        return inside + _code_of(value)

    def _module(self, label: str, module: torch.nn.Module, state: dict[str, Any]) -> list[tuple[str, Any]]:
        """Its own dictionaries are never exchanged for others: what stands in them is watched, and how many hooks."""
        start = f"{label}." if label else ""
        inside = self._slots(state, [(key, start + key) for key in state if key not in _MODULE_DICTS])
        for part in ("_parameters", "_buffers", "_modules"):
            entries = state[part]
            inside += self._slots(entries, [(key, start + key) for key in entries if entries[key] is not None])
        if state["_modules"]:
            self._size(f"{label or 'a module'}'s modules", state["_modules"])
        for part in _HOOKS:
            self._size(f"{label or 'a module'}'s {part.strip('_').replace('_', ' ')}", state[part])
        return inside + _code_of(module)

    def _function(self, function: types.FunctionType) -> list[tuple[str, Any]]:
        inside: list[tuple[str, Any]] = []
        if function.__closure__:
            cells = Cells(function)
            inside += self._slots(cells, [(name, name) for name in cells])
        inside += [("a default", value) for value in function.__defaults__ or ()]
        if _users(function):
            names = _named_globals(function.__code__)
            inside += self._slots(
                function.__globals__, [(name, name) for name in sorted(names) if name in function.__globals__]
            )
        wrapped = getattr(function, "__wrapped__", None)
        return [*inside, ("", wrapped)] if wrapped is not None else inside

    def _slots(self, container: Any, keys: list[tuple[Any, str]]) -> list[tuple[str, Any]]:
        inside: list[tuple[str, Any]] = []
        for key, label in keys:
            value = container[key]
            self._containers.append(container)
            self._keys.append(key)
            self._values.append(value)
            self._labels.append(label)
            inside.append((label, value))
        return inside

    def _size(self, label: str, container: Any) -> None:
        label = label or "a container"
        if len(container):
            self._sized.append(container)
            self._sizes.append(len(container))
            self._size_labels.append(label)
        else:
            self._empty.append(container)
            self._empty_labels.append(label)


def _code_of(value: Any) -> list[tuple[str, Any]]:
    """The function that a call of an object runs, where it is the user's: it may name globals."""
    code = vars(type(value)).get("forward") or vars(type(value)).get("__call__")
    return [(code.__name__, code)] if isinstance(code, types.FunctionType) and _users(code) else []


def _named_globals(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _named_globals(constant)
    return names


def _users(function: Callable[..., Any]) -> bool:
    file = function.__code__.co_filename
    return not (is_framework(file) or "site-packages" in file or "dist-packages" in file)


def _plain(value: Any) -> bool:
    return isinstance(value, _SCALARS) or (isinstance(value, tuple) and all(map(_plain, value)))


def _shown(key: Any) -> str:
    return repr(key) if isinstance(key, (str, int)) else f"a {type(key).__name__}"


def _difference(label: str, old: Any, new: Any) -> str:
    if _plain(old) and _plain(new):
        return f"{label} was {old!r} and is {new!r}"
    if isinstance(new, torch.Tensor):
        return f"{label} is another tensor"
    return f"{label} is another object"
