"""The measured function with its arguments, and all values that the function may read."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from unstall.frameworks import FRAMEWORKS

_Value = TypeVar("_Value")

_DEEP = 4
_MOST_ITEMS = 1_000
_MOST_VISITS = 20_000
_PLAIN = (str, bytes, int, float, complex, type, type(None))
CONTAINERS = (Mapping, list, tuple, set, frozenset, deque)


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function with its arguments. To call this object is to call the function with these arguments."""

    fn: Callable[..., object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    def __call__(self) -> object:
        return self.fn(*self.args, **self.kwargs)

    def bare(self) -> Callable[[], object]:
        """Returns a callable that calls the function with its arguments. The callable adds as little Python overhead as
        possible."""
        if not self.args and not self.kwargs:
            return self.fn
        return functools.partial(self.fn, *self.args, **self.kwargs)

    def label(self) -> str:
        """Returns the name of the function, as reports show it."""
        fn = self.fn
        while isinstance(fn, functools.partial):
            fn = fn.func
        name = str(getattr(fn, "__name__", type(fn).__name__))
        code = getattr(fn, "__code__", None)
        if name == "<lambda>" and code is not None:
            return f"lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"
        return name

    def inputs(self) -> list[tuple[str, object]]:
        """Returns a pair (name, value) for each value that the function may read: its arguments,
        closure, globals, defaults and `self`.

        In place of a container, its items are included. In place of a torch module, its parameters
        and buffers are included. For an object whose class belongs to the program, its attributes
        are included, too.
        """
        return [(name, value) for name, value in self.known() if not isinstance(value, CONTAINERS)]

    def known(self) -> list[tuple[str, object]]:
        """Returns the same pairs (name, value) as `inputs`, and also a pair for each container."""
        opening = _Opening()
        for name, value in self._roots():
            opening.open(name, value, _DEEP)
        return opening.found[:_MOST_ITEMS]

    def _roots(self) -> Iterator[tuple[str, object]]:
        signature = _parameters(self.fn)
        names = [*signature[: len(self.args)], *(f"argument {n + 1}" for n in range(len(signature), len(self.args)))]
        given = {**dict(zip(names, self.args, strict=True)), **self.kwargs}
        yield from given.items()
        yield from ((name, value) for name, value in _captured(self.fn) if name not in given)


def _parameters(fn: Callable[..., object]) -> list[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
        return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        return []


def _captured(fn: object) -> Iterator[tuple[str, object]]:
    if isinstance(fn, functools.partial):
        for number, value in enumerate(fn.args):
            yield f"argument {number + 1}", value
        yield from fn.keywords.items()
        yield from _captured(fn.func)
        return
    bound = getattr(fn, "__self__", None)
    if bound is not None and not isinstance(bound, types.ModuleType):
        yield "self", bound
    if not hasattr(fn, "__code__"):
        fn = getattr(fn, "__wrapped__", None) or getattr(fn, "__func__", fn)
        if not hasattr(fn, "__code__"):
            yield "self", fn
            return
    code = fn.__code__
    for name, cell in zip(code.co_freevars, getattr(fn, "__closure__", None) or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet bound
            continue
    known = getattr(fn, "__globals__", {})
    for name in _names(code):
        if name in known and not isinstance(known[name], types.ModuleType):
            yield name, known[name]
    defaults = getattr(fn, "__defaults__", None) or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    yield from (getattr(fn, "__kwdefaults__", None) or {}).items()


def _names(code: types.CodeType) -> list[str]:
    """Returns the names of the globals that `code` may read, and those that functions defined in this code may read."""
    within = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for each in within for name in _names(each))]))


class _Opening:
    """Collects values with their names. Each value is collected once. Also collects the contents of containers and of
    objects. Stops after 20,000 visited values (`_MOST_VISITS`).
    """

    def __init__(self) -> None:
        self.found: list[tuple[str, object]] = []
        self._seen: set[int] = set()
        self._left = _MOST_VISITS

    def open(self, name: str, value: Any, deep: int) -> None:
        self._left -= 1
        if id(value) in self._seen or deep < 0 or self._left < 0 or isinstance(value, _PLAIN):
            return
        self._seen.add(id(value))
        if isinstance(value, types.FunctionType):
            for inner, each in _captured(value) if deep else ():
                self.open(inner, each, min(deep - 1, 1))
            return
        if callable(getattr(value, "named_parameters", None)) and callable(getattr(value, "named_buffers", None)):
            for inner, each in [*value.named_parameters(), *value.named_buffers()]:
                self.open(f"{name}.{inner}", each, deep - 1)
            return
        self.found.append((name, value))
        for inner, each in _within(name, value):
            self.open(inner, each, deep - 1)


def _within(name: str, value: Any) -> list[tuple[str, object]]:
    """Returns a pair (name, value) for each item of `value` if it is a container, or for each
    attribute if it is an object whose class belongs to the program. `name` is the name of `value`,
    with which the returned names begin.
    """
    if isinstance(value, Mapping):
        return [(f"{name}[{key!r}]", each) for key, each in _first(value.items())]
    if isinstance(value, CONTAINERS):
        return [(f"{name}[{number}]", each) for number, each in enumerate(_first(value))]
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not isinstance(value, types.ModuleType) and _is_users(type(value)):
        return [(f"{name}.{key}", each) for key, each in _first(held.items())]
    return []


def _first(values: Iterable[_Value]) -> list[_Value]:
    try:
        return list(itertools.islice(values, _MOST_ITEMS))
    except RuntimeError:  # another thread is changing it
        return []


def _is_users(kind: type) -> bool:
    """Returns whether a class belongs to the user's program. Returns False for a class of a library or a framework."""
    if kind.__module__.partition(".")[0] in FRAMEWORKS | sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file
