"""Functions whose calls run in a block: async functions and generators stay what they are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from unstall.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])
Block = Callable[[], AbstractContextManager[object]]


def decorated(function: Function, block: Block) -> Function:
    """Returns a function of the same kind. Each call runs in a block of its own.

    A generator's block is entered whenever it runs on, and left at each of its values.

    Raises UsageError if `function` cannot be called.
    """
    if not callable(function):
        raise UsageError(f"only functions can be decorated, not {function!r}")

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return _async_generator(function(*args, **kwargs), block)

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return _generator(function(*args, **kwargs), block)

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            with block():
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with block():
                return function(*args, **kwargs)

    return cast(Function, wrapper)


def _generator(generator: Generator[Any, Any, Any], block: Block) -> Generator[Any, Any, Any]:
    send: Callable[[], Any] = functools.partial(next, generator)
    try:
        while True:
            with block():
                try:
                    value = send()
                except StopIteration as end:
                    return end.value
            try:
                send = functools.partial(generator.send, (yield value))
            except GeneratorExit:
                raise
            except BaseException as error:
                send = functools.partial(generator.throw, error)
    finally:
        with block():
            generator.close()


async def _async_generator(generator: AsyncGenerator[Any, Any], block: Block) -> AsyncGenerator[Any, Any]:
    send: Callable[[], Any] = generator.__anext__
    try:
        while True:
            with block():
                try:
                    value = await send()
                except StopAsyncIteration:
                    return
            try:
                send = functools.partial(generator.asend, (yield value))
            except GeneratorExit:
                raise
            except BaseException as error:
                send = functools.partial(generator.athrow, error)
    finally:
        with block():
            await generator.aclose()
