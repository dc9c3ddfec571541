"""Finds the Python-side state that a function can reach, and guards this state. A graph keeps the values that the state
had at the capture, so the graph is valid only while the state is unchanged.

The search visits closures, globals that the code names, `self`, and the user's classes and modules. The search also
visits, recursively, the contents of all these objects. Guards are made for the parts of the state that the executed
code has names for. A guarded item is an attribute, an item of a container or a closure cell. It is described by a
container and a key in the container.
"""

from __future__ import annotations

import dis
import functools
import os
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch

from unstall.fix.graphs.autograd.nodes import is_leaf
from unstall.fix.graphs.examine.guard_sources import Attributes, Cells, contents_of
from unstall.fix.graphs.examine.guards import Guards, guards_of, item_of
from unstall.fix.graphs.examine.users_code import is_users_class, is_users_code, is_users_module

_MOST_ITEMS = 50_000
_LONG = 2_000  # a longer list or dict is data: its items are not walked
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MODULE_DICTS = {name for name, value in vars(torch.nn.Module()).items() if isinstance(value, (dict, set))}
_HOOKS_OF_ALL = [
    value
    for name, value in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and isinstance(value, dict)
]
_READS_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)  # for example a bound method of a list or dict


@dataclass(frozen=True, slots=True)
class CodeWithGlobals:
    """A code object that ran.

    Attributes:
        code: The code object.
        names: The global variables of its module, by name.
    """

    code: types.CodeType
    names: dict[str, Any]


Named = tuple[str, object]
"""A name in the program, and its value."""


class ReachableState:
    """The Python-side state that a function can reach: items of containers, with the values that they have when this
    object is made. This object keeps the values alive, so that no id is used twice.

    Args:
        roots: The objects from which the search starts, such as the function.
        of_host_tensors: Whether the contents of CPU tensors belong to the state.
    """

    def __init__(self, roots: Sequence[object], *, of_host_tensors: bool = False) -> None:
        self.complete = True
        self.known: dict[int, object] = {}
        """All reached objects, by id."""
        self.names: set[str] = set()  # names in code that may run unobserved, such as in backward
        self.hooks_of_backward: list[str] = []
        self._of_host_tensors = of_host_tensors
        self._containers: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[object] = []
        self._labels: list[str] = []
        self._nameless: list[bool] = []  # whether code can read the item without naming it
        self._guarded: set[tuple[int, Any]] = set()
        self._sized: list[Sized] = []
        self._sizes: list[int] = []
        self._size_labels: list[str] = []
        self._guards: Guards | None = None  # guards of items and sizes, made once all are known
        for hooks in _HOOKS_OF_ALL if roots else ():
            self._size("hooks of all modules", hooks)
        self._walk(roots)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [value for value in self._values if isinstance(value, torch.Tensor)]

    def labelled(self) -> list[tuple[torch.Tensor, str]]:
        """Returns all tensors of the state, each with its name in the program."""
        pairs = zip(self._values, self._labels, strict=True)
        return [(value, label) for value, label in pairs if isinstance(value, torch.Tensor)]

    def iterators(self) -> list[str]:
        """Returns the names of iterators whose position can neither be read nor restored."""
        held = [value.__self__ if isinstance(value, _BOUND) else value for value in self._values]
        pairs = zip(held, self._labels, strict=True)
        return [label for value, label in pairs if isinstance(value, Iterator) and not hasattr(value, "__dict__")]

    def limited_to(self, names: frozenset[str] | None) -> ReachableState:
        """Returns the part of the state that code could read if it has only the names `names`. If `names` is None,
        returns all of the state."""
        if names is None:
            return self
        other = ReachableState([])
        other.complete, other.known, other.names = self.complete, self.known, self.names
        other.hooks_of_backward = self.hooks_of_backward
        columns = (self._containers, self._keys, self._values, self._labels, self._nameless)
        kept = [
            item
            for item in zip(*columns, strict=True)
            if item[4] or not isinstance(item[1], str) or item[1] in names or item[1] in self.names
        ]
        if kept:
            parts = (list(column) for column in zip(*kept, strict=True))
            other._containers, other._keys, other._values, other._labels, other._nameless = parts
        other._sized, other._sizes, other._size_labels = self._sized, self._sizes, self._size_labels
        return other

    def guards_hold(self) -> bool:
        """Returns whether the state is unchanged since this object was made. It is called before each replay of a
        graph."""
        if self._guards is None:
            items = zip(self._containers, self._keys, self._values, strict=True)
            self._guards = guards_of(items=items, sizes=zip(self._sized, self._sizes, strict=True))
        return self._guards.hold() or not self.changes(first=True)

    def changes(self, *, first: bool = False) -> list[str]:
        """Returns a description of each change of the state since this object was made. If `first` is True, stops after
        the first change. If a number, a string or another plain value was replaced by an equal value, this is not a
        change."""
        found: list[str] = []
        for place, (container, key) in enumerate(zip(self._containers, self._keys, strict=True)):
            old = self._values[place]
            try:
                new = item_of(container, key)
            except (KeyError, IndexError):
                found.append(f"{self._labels[place]} is gone")
            else:
                if new is old:
                    continue
                if type(new) is type(old) and _plain(old) and repr(new) == repr(old):  # 0.0 is equal to -0.0
                    self._values[place] = new
                    if self._guards is not None:
                        self._guards.expect(place, new)
                    continue
                found.append(_difference(self._labels[place], old, new))
            if first:
                return found
        for label, container, size in zip(self._size_labels, self._sized, self._sizes, strict=True):
            if len(container) != size:
                found.append(f"{label} had {size} items and has {len(container)}")
                if first:
                    return found
        return found

    def _walk(self, roots: Sequence[object]) -> None:
        # Depth first, in the order of the roots. `todo` is a stack.
        todo: list[Named] = [("", root) for root in reversed(roots)]
        while todo:
            label, value = todo.pop()
            if isinstance(value, _SCALARS) or id(value) in self.known:
                continue
            self.known[id(value)] = value
            for part, child in reversed(self._open(label, value)):
                todo.append((part, child))
            if len(self._keys) > _MOST_ITEMS:
                self.complete = False
                return

    def _open(self, label: str, value: object) -> list[Named]:
        """Adds the items of one object to the state. Returns the names and values of these items. Runs none of the
        user's code."""
        if isinstance(value, torch.Tensor):
            self._contents(label, value)
            return _hooks_of(label, value)
        if isinstance(
            value, (torch.Generator, property, classmethod, staticmethod, functools.partial, CodeWithGlobals)
        ):
            return self._parts(label, value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return [(value.__func__.__name__, value.__func__), ("self", value.__self__)]
        if isinstance(value, _BOUND):
            return [(label, value.__self__)] if value.__self__ is not None else []
        if isinstance(value, (dict, list, deque, tuple, set, frozenset)):
            return self._collection(label, value)
        if isinstance(value, types.ModuleType):
            return self._namespace(label, vars(value)) if is_users_module(value) else []
        if isinstance(value, type):
            return self._class(value)
        if type(value).__module__.startswith("unstall."):  # our own objects change with each call
            wrapped = getattr(value, "__wrapped__", None) or getattr(value, "_unstall_module", None)
            return [(label, wrapped)] if wrapped is not None else []
        return self._object(label, value)

    def _parts(self, label: str, value: object) -> list[Named]:
        if isinstance(value, property):
            return [(label, part) for part in (value.fget, value.fset) if part is not None]
        if isinstance(value, (classmethod, staticmethod)):
            return [(label, value.__func__)]
        if isinstance(value, functools.partial):
            return [(label, value.func), (label, value.args), (label, value.keywords)]
        return self._globals(value.code, value.names) if isinstance(value, CodeWithGlobals) else []

    def _collection(self, label: str, value: Any) -> list[Named]:
        kind = next(base for base in (dict, list, deque, tuple, set, frozenset) if isinstance(value, base))
        read = ("__len__", "__getitem__") if kind in (dict, list) else ("__len__",)
        if any(getattr(type(value), name) is not getattr(kind, name) for name in read):  # the user's code would run
            return []
        if kind not in (tuple, frozenset):
            self._size(label, value)
        if kind in (set, frozenset) or len(value) > _LONG:
            self._contents(label, value)
            return [] if len(value) > _LONG else [(f"{label}[…]", item) for item in value]
        if kind is tuple:
            return [(f"{label}[…]", item) for item in value]
        keys = dict.__iter__(value) if kind is dict else range(len(value))
        return self._items(value, [(key, f"{label}[{_shown(key)}]") for key in keys], nameless=True)

    def _object(self, label: str, value: object) -> list[Named]:
        start = f"{label}." if label else ""
        inside: list[Named] = []
        try:
            state = object.__getattribute__(value, "__dict__")
        except AttributeError:
            state = None
        if isinstance(value, torch.nn.Module):
            inside += self._module(label, value, state)
        elif isinstance(state, dict):
            inside += self._items(state, [(key, start + str(key)) for key in state])
        if isinstance(state, dict):  # an attribute added later may shadow one of its class
            self._size(f"{label or f'a {type(value).__name__}'}'s attributes", state)
        else:
            self._contents(label, value)
        slotted = Attributes(value)
        inside += self._items(slotted, [(key, start + key) for key in slotted])
        return [*inside, *((base.__name__, base) for base in type(value).__mro__ if is_users_class(base))]

    def _module(self, label: str, module: torch.nn.Module, state: dict[str, Any]) -> list[Named]:
        """Adds two things to the state: the items of a module's own dictionaries, and how many hooks of each kind the
        module has. The dictionaries themselves are not added, because no code replaces them."""
        start = f"{label}." if label else ""
        inside = self._items(state, [(key, start + key) for key in state if key not in _MODULE_DICTS])
        for part in ("_parameters", "_buffers", "_modules"):
            entries = state[part]
            # A ScriptModule's dictionaries support only `keys()`.
            inside += self._items(entries, [(key, start + key) for key in entries.keys()], nameless=True)  # noqa: SIM118
        if state["_modules"]:
            self._size(f"{label or 'a module'}'s modules", state["_modules"])
        for part in _HOOKS:
            self._size(f"{label or 'a module'}'s {part.strip('_').replace('_', ' ')}", state[part])
            inside += [(part, hook) for hook in state[part].values()]
            if state[part] and "backward" in part:
                self.hooks_of_backward.append(f"a backward hook of {label or 'the module'}")
        return inside

    def _class(self, value: type) -> list[Named]:
        if not is_users_class(value):
            return []
        inside = self._namespace(value.__name__, vars(value))
        if issubclass(value, torch.autograd.Function):
            for _, part in inside:
                function = getattr(part, "__func__", part)
                if isinstance(function, types.FunctionType):
                    self.names |= _names_of(function.__code__)
        return inside

    def _namespace(self, label: str, names: Mapping[str, object]) -> list[Named]:
        keys = [key for key in names if not (key.startswith("__") and key.endswith("__")) or key == "__call__"]
        return self._items(names, [(key, f"{label}.{key}") for key in keys])

    def _function(self, function: types.FunctionType) -> list[Named]:
        inside: list[Named] = []
        if function.__closure__:
            cells = Cells(function)
            inside += self._items(cells, [(name, name) for name in cells])
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        inside += [("a default", value) for value in defaults]
        if is_users_code(function.__code__):
            start = function.__name__
            inside += self._items(vars(function), [(key, f"{start}.{key}") for key in vars(function)])
            inside += self._globals(function.__code__, function.__globals__)
        wrapped = getattr(function, "__wrapped__", None)
        return [*inside, ("", wrapped)] if wrapped is not None else inside

    def _globals(self, code: types.CodeType, names: dict[str, Any]) -> list[Named]:
        inside = self._items(names, [(name, name) for name in sorted(_globals_of(code)) if name in names])
        if not _names_of(code).isdisjoint(("environ", "getenv")):
            inside += [("os.environ", getattr(os.environ, "_data", None))]
        return inside

    def _items(self, container: Any, keys: list[tuple[Any, str]], *, nameless: bool = False) -> list[Named]:
        inside: list[Named] = []
        for key, label in keys:
            if (id(container), key) in self._guarded:
                continue
            self._guarded.add((id(container), key))
            value = container[key]
            self._containers.append(container)
            self._keys.append(key)
            self._values.append(value)
            self._labels.append(label)
            self._nameless.append(nameless)
            inside.append((label, value))
        return inside

    def _contents(self, label: str, value: object) -> None:
        contents = contents_of(value, of_host_tensors=self._of_host_tensors)
        if contents is not None:
            self._items(contents, [(0, f"what {label or 'an argument'} holds")], nameless=True)

    def _size(self, label: str, container: Sized) -> None:
        self._sized.append(container)
        self._sizes.append(len(container))
        self._size_labels.append(label or "a container")


def _hooks_of(label: str, tensor: torch.Tensor) -> list[Named]:
    held = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)) if is_leaf(tensor) else ()
    return [(f"a hook of {label}", hook) for hooks in held if hooks for hook in hooks.values()]


def _names_of(code: types.CodeType) -> set[str]:
    """Returns all names of globals, attributes and closure variables in the code object and its nested code objects."""
    names = {*code.co_names, *code.co_freevars}
    return names.union(*map(_names_of, _codes_in(code)))


@functools.lru_cache(maxsize=1024)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """Returns the names that the code object, or a code object nested in it, reads as globals and not as attributes."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in _READS_GLOBAL}
    return frozenset(names).union(*map(_globals_of, _codes_in(code)))


def _codes_in(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _plain(value: object) -> bool:
    return isinstance(value, _SCALARS) or (isinstance(value, tuple) and all(map(_plain, value)))


def _shown(key: object) -> str:
    return repr(key) if isinstance(key, (str, int)) else f"a {type(key).__name__}"


def _difference(label: str, old: object, new: object) -> str:
    if label.startswith("what "):
        return f"{label} has changed"
    if _plain(old) and _plain(new):
        return f"{label} was {old!r} and is {new!r}"
    if isinstance(new, torch.Tensor):
        return f"{label} is another tensor"
    return f"{label} is another object"
