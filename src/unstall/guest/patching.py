"""Observes calls of a function by temporarily replacing the function with a wrapper."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any

try:
    from unstall.guest import _after
except ImportError:
    _after = None  # type: ignore[assignment]  # built only if there is a C compiler


def wrap(owner: Any, name: str, call: Callable[..., Any]) -> Callable[[], None]:
    """Replaces `owner.name` by a wrapper that calls `call(original, *args, **kwargs)`. Returns a function that
    restores `owner.name`.

    After `owner.name` is restored, other code may still have a reference to the wrapper. The wrapper then only calls
    the original.
    """
    original = getattr(owner, name)
    armed = True

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs) if armed else original(*args, **kwargs)

    def disarm() -> None:
        nonlocal armed
        armed = False

    _keep_from_compilers(wrapper, call)
    return _put(wrapper, owner, name, disarm)


def wrap_after(owner: Any, name: str, after: Callable[..., object], *, always: bool = False) -> Callable[[], None]:
    """Patches `owner.name`, which is a function. Each time a call of this function returns, `after(*args, **kwargs)` is
    called with the arguments of this call. If `always`, it is also called if the function raises an exception. Returns
    a function that removes the patch.

    If unstall's C extension was built, the patch does not appear in the traceback of an exception that the original
    function raises.
    """
    if _after is None:
        return wrap(owner, name, _and_then(after, always))
    wrapper: Any = followed(getattr(owner, name), after, always=always)
    wrapper._torchdynamo_disable = True
    _keep_from_compilers(after)
    return _put(wrapper, owner, name, wrapper.disarm)


def followed(original: Callable[..., Any], after: Callable[..., object], *, always: bool = False) -> Callable[..., Any]:
    """Returns a function that calls `original`. If `original` returns without an exception, or if `always`, the
    returned function then calls `after` with the same arguments. It returns the result of `original`.

    If unstall's C extension was built, the returned function does not appear in tracebacks of exceptions that
    `original` raises.
    """
    if _after is not None:
        return functools.update_wrapper(_after.After(original, after, always), original)

    call = _and_then(after, always)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    return wrapper


def _and_then(after: Callable[..., object], always: bool) -> Callable[..., Any]:
    """Does in Python what `_after.After` does in C."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        tells = always
        try:
            result = original(*args, **kwargs)
            tells = True
            return result
        finally:
            if tells:
                after(*args, **kwargs)

    return call


def in_turn(*calls: Callable[..., object]) -> Callable[..., Any]:
    """Returns a function f. A call f(*args, **kwargs) calls each of `calls` in order with these arguments, and returns
    the result of the first. If one of `calls` raises an exception, the others are not called, and f raises the
    exception.

    If unstall's C extension was built, f does not appear in tracebacks of exceptions that the first of `calls` raises.
    """
    return functools.reduce(followed, calls)


def _put(wrapper: Any, owner: Any, name: str, disarm: Callable[[], None]) -> Callable[[], None]:
    """Sets `owner.name` to the wrapper. Returns a function that calls `disarm`. If `owner.name` is still the wrapper,
    the returned function also restores `owner.name`."""
    original = getattr(owner, name)
    setattr(owner, name, wrapper)

    def undo() -> None:
        disarm()
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return undo


def _keep_from_compilers(*functions: Any) -> None:
    """Makes torch.compile skip `functions`. Each of them replaces a function of torch that torch.compile already skips.
    Without this call, torch.compile would trace `functions` and warn about them."""
    torch = sys.modules.get("torch")
    for function in functions:
        function._torchdynamo_disable = True  # for calls from code that it traces
        with suppress(AttributeError):  # internals of torch, which may differ between versions
            frames = torch._C._dynamo.eval_frame  # type: ignore[union-attr]
            if hasattr(frames, "skip_code"):
                frames.skip_code(function.__code__)
            else:
                skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
                frames.set_code_exec_strategy(function.__code__, skip)


def unwrapped(function: object) -> FunctionType | None:
    """Removes all wrappers that `functools.wraps` made, and returns the innermost function. Returns None if the
    innermost function is not a Python function."""
    seen = set()
    while id(function) not in seen and hasattr(function, "__wrapped__"):
        seen.add(id(function))
        function = function.__wrapped__
    return function if isinstance(function, FunctionType) else None
