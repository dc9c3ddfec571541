"""The function that is measured with its arguments, and all values that it can be seen to read."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_DEEP = 4
_MOST_ITEMS = 1_000


@dataclass(frozen=True, slots=True)
class Call:
    """`fn(*args, **kwargs)`."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return self.fn(*self.args, **self.kwargs)

    def bare(self) -> Callable[[], Any]:
        """The same with as little around it as Python allows: what is called many times."""
        if not self.args and not self.kwargs:
            return self.fn
        return functools.partial(self.fn, *self.args, **self.kwargs)

    def label(self) -> str:
        """What the function is called."""
        fn = self.fn
        while isinstance(fn, functools.partial):
            fn = fn.func
        name = str(getattr(fn, "__name__", type(fn).__name__))
        code = getattr(fn, "__code__", None)
        if name == "<lambda>" and code is not None:
            return f"lambda at {Path(code.co_filename).name}:{code.co_firstlineno}"
        return name

    def inputs(self) -> list[tuple[str, Any]]:
        """Values with their names: the arguments, and what the function finds in its closure, its globals, its
        defaults and the object that it is a method of. Containers are opened, modules' parameters and buffers too."""
        found: list[tuple[str, Any]] = []
        seen: set[int] = set()
        for name, value in self._roots():
            found += _opened(name, value, seen, _DEEP)
        return found[:_MOST_ITEMS]

    def _roots(self) -> Iterator[tuple[str, Any]]:
        signature = _parameters(self.fn)
        for number, value in enumerate(self.args):
            yield signature[number] if number < len(signature) else f"argument {number + 1}", value
        yield from self.kwargs.items()
        yield from _captured(self.fn)


def _parameters(fn: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
        return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        return []


def _captured(fn: Any) -> Iterator[tuple[str, Any]]:
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
    yield from (getattr(fn, "__kwdefaults__", None) or {}).items()


def _names(code: types.CodeType) -> list[str]:
    """The globals that it may read, and functions within it."""
    within = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for each in within for name in _names(each))]))


def _opened(name: str, value: Any, seen: set[int], deep: int) -> Iterator[tuple[str, Any]]:
    if id(value) in seen or deep < 0 or isinstance(value, str | bytes | int | float | type | None):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        for key, each in list(value.items())[:_MOST_ITEMS]:
            yield from _opened(f"{name}[{key!r}]", each, seen, deep - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, each in enumerate(list(value)[:_MOST_ITEMS]):
            yield from _opened(f"{name}[{number}]", each, seen, deep - 1)
    elif isinstance(value, types.FunctionType) and deep:
        for inner, each in _captured(value):
            yield from _opened(inner, each, seen, min(deep - 1, 1))
    elif callable(getattr(value, "named_parameters", None)) and callable(getattr(value, "named_buffers", None)):
        for inner, each in [*value.named_parameters(), *value.named_buffers()]:
            yield from _opened(f"{name}.{inner}", each, seen, deep - 1)
    else:
        yield name, value
