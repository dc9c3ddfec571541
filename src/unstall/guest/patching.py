"""Calls of a function by others, seen by way of a wrapper that takes its place, and that goes again."""

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
    _after = None  # type: ignore[assignment]  # built only where there is a C compiler


def wrap(owner: Any, name: str, call: Callable[..., Any]) -> Callable[[], None]:
    """Have `call(original, *args, **kwargs)` be what calling `owner.name` does, and return the undoing.

    Whoever wraps or keeps the wrapper in the meantime has, after the undoing, one that only calls the original.
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


def wrap_after(owner: Any, name: str, after: Callable[..., object]) -> Callable[[], None]:
    """Have `after(*args, **kwargs)` called where a call of `owner.name` returns, and return the undoing.

    What that call raises has the traceback that it has without us, but for where there is no C compiler.
    """
    if _after is None:
        return wrap(owner, name, _and_then(after))
    wrapper: Any = followed(getattr(owner, name), after)
    wrapper._torchdynamo_disable = True
    _keep_from_compilers(after)
    return _put(wrapper, owner, name, wrapper.disarm)


def followed(original: Callable[..., Any], after: Callable[..., object]) -> Callable[..., Any]:
    """What calls `original`, and `after(*args, **kwargs)` where that returns; what it raises has the traceback that it
    has without us, but for where there is no C compiler."""
    if _after is not None:
        return functools.update_wrapper(_after.After(original, after), original)

    call = _and_then(after)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(original, *args, **kwargs)

    return wrapper


def _and_then(after: Callable[..., object]) -> Callable[..., Any]:
    """What `_after.After` does, in Python."""

    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        after(*args, **kwargs)
        return result

    return call


def in_turn(*calls: Callable[..., object]) -> Callable[..., Any]:
    """What calls these one after another, each with the same arguments, until one raises; it returns what the first
    does. Of what is raised the same holds as of what is `followed`."""
    return functools.reduce(followed, calls)


def _put(wrapper: Any, owner: Any, name: str, disarm: Callable[[], None]) -> Callable[[], None]:
    """Have it take the place of what it wraps, and return the undoing, which leaves alone what somebody put there."""
    original = getattr(owner, name)
    setattr(owner, name, wrapper)

    def undo() -> None:
        disarm()
        if getattr(owner, name) is wrapper:
            setattr(owner, name, original)

    return undo


def _keep_from_compilers(*functions: Any) -> None:
    """Have torch.compile run these as they are, as it does torch's own that they stand for: it would trace what they
    do, and warn of that."""
    torch = sys.modules.get("torch")
    for function in functions:
        function._torchdynamo_disable = True  # where what it traces calls them
        with suppress(AttributeError):  # of torch's own, and so another in another version
            frames = torch._C._dynamo.eval_frame  # type: ignore[union-attr]
            if hasattr(frames, "skip_code"):
                frames.skip_code(function.__code__)
            else:
                skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
                frames.set_code_exec_strategy(function.__code__, skip)


def unwrapped(function: object) -> FunctionType | None:
    """The function within its wrappers, as `functools.wraps` tells of them; None where it is none of Python's."""
    seen = set()
    while id(function) not in seen and hasattr(function, "__wrapped__"):
        seen.add(id(function))
        function = function.__wrapped__
    return function if isinstance(function, FunctionType) else None
