"""Decorates a function so that each call runs in a `with` block. A decorated async function is an async function, and a
decorated generator function is a generator function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from unstall.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
AnyFunction = Callable[..., Any]
Block = Callable[[], AbstractContextManager[object]]


def decorated(function: Function, block: Block) -> Function:
    """Returns a function that calls `function` in a `with` block. `block` returns a new context manager for each call.

    If `function` is an async function, the returned function is an async function. If `function` is a generator
    function, the returned function is a generator function. In a generator, the block is entered each time the
    generator resumes, and exited each time the generator yields.

    Raises UsageError if `function` is not callable.
    """
    if not callable(function):
        raise UsageError(f"only functions can be decorated, not {function!r}")
    if inspect.isasyncgenfunction(function):
        wrap = _async_generator
    elif inspect.isgeneratorfunction(function):
        wrap = _generator
    elif inspect.iscoroutinefunction(function):
        wrap = _coroutine
    else:
        wrap = _plain
    return cast(Function, functools.update_wrapper(wrap(function, block), function))


def _plain(function: AnyFunction, block: Block) -> AnyFunction:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return wrapper


def _coroutine(function: AnyFunction, block: Block) -> AnyFunction:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with block():
            return await function(*args, **kwargs)

    return wrapper


def _generator(function: AnyFunction, block: Block) -> AnyFunction:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        run_on: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                with block():
                    try:
                        value = run_on()
                    except StopIteration as end:
                        return end.value
                try:
                    run_on = functools.partial(generator.send, (yield value))
                except GeneratorExit:
                    raise
                except BaseException as error:
                    run_on = functools.partial(generator.throw, error)
        finally:
            with block():
                generator.close()

    return wrapper


def _async_generator(function: AnyFunction, block: Block) -> AnyFunction:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        run_on: Callable[[], Any] = generator.__anext__
        try:
            while True:
                with block():
                    try:
                        value = await run_on()
                    except StopAsyncIteration:
                        return
                try:
                    run_on = functools.partial(generator.asend, (yield value))
                except GeneratorExit:
                    raise
                except BaseException as error:
                    run_on = functools.partial(generator.athrow, error)
        finally:
            with block():
                await generator.aclose()

    return wrapper
