"""Decorated functions stay what they are, and each call is guarded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest
from guarding.test_regions import is_refused

from unstall import allow_sync, no_sync
from unstall.errors import UsageError
from unstall.guarding import regions


@no_sync()
def plain(value: int, *, more: int = 0) -> tuple[int, bool]:
    """Adds."""
    return value + more, is_refused()


@no_sync()
async def asynchronous(value: int) -> tuple[int, bool]:
    await asyncio.sleep(0)
    return value, is_refused()


@no_sync()
def generator(first: int) -> Generator[object, Any, object]:
    caught: object = None
    try:
        sent = yield first, is_refused()
        yield sent, is_refused()
    except ZeroDivisionError as error:
        caught = error
        yield "caught", is_refused()
    return caught, is_refused()


@no_sync()
async def async_generator(first: int) -> AsyncGenerator[object, Any]:
    try:
        sent = yield first, is_refused()
        yield sent, is_refused()
    except ZeroDivisionError:
        yield "caught", is_refused()


def test_a_function_is_guarded_in_each_call() -> None:
    assert [plain(1, more=2), plain(3)] == [(3, True), (3, True)]
    assert not is_refused()


def test_the_name_the_docstring_and_the_signature_are_kept() -> None:
    assert (plain.__name__, plain.__doc__) == ("plain", "Adds.")
    assert str(inspect.signature(plain)) == "(value: 'int', *, more: 'int' = 0) -> 'tuple[int, bool]'"


def test_functions_keep_their_kind() -> None:
    assert inspect.iscoroutinefunction(asynchronous)
    assert inspect.isgeneratorfunction(generator)
    assert inspect.isasyncgenfunction(async_generator)
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    assert not any(is_kind(plain) for is_kind in kinds)


def test_an_async_function_is_guarded_across_its_awaits() -> None:
    assert asyncio.run(asynchronous(4)) == (4, True)


def test_a_generator_is_guarded_only_while_it_runs() -> None:
    running = generator(1)
    assert next(running) == (1, True)
    assert not is_refused()
    assert running.send("sent") == ("sent", True)
    with pytest.raises(StopIteration) as end:
        next(running)
    assert end.value.value == (None, True)


def test_an_exception_that_is_thrown_into_a_generator_arrives() -> None:
    running = generator(1)
    next(running)
    assert running.throw(ZeroDivisionError()) == ("caught", True)


def test_closing_a_generator_runs_its_end_guarded() -> None:
    seen = []

    @no_sync()
    def values() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            seen.append(is_refused())

    running = values()
    next(running)
    running.close()
    assert seen == [True]
    assert not regions.is_guarded()


def test_a_generator_that_is_never_finished_guards_nothing() -> None:
    running = generator(1)
    next(running)
    assert not regions.is_guarded()


def test_an_async_generator_is_guarded_only_while_it_runs() -> None:
    async def use() -> list[object]:
        running = async_generator(1)
        first = await anext(running)
        between = is_refused()
        second = await running.asend("sent")
        with pytest.raises(StopAsyncIteration):
            await anext(running)
        return [first, between, second]

    assert asyncio.run(use()) == [(1, True), False, ("sent", True)]


def test_an_exception_that_is_thrown_into_an_async_generator_arrives() -> None:
    async def use() -> object:
        running = async_generator(1)
        await anext(running)
        return await running.athrow(ZeroDivisionError())

    assert asyncio.run(use()) == ("caught", True)


def test_a_recursive_function_is_guarded_until_the_outermost_call_returns() -> None:
    @no_sync()
    def down(depth: int) -> list[bool]:
        below = down(depth - 1) if depth else []
        return [*below, is_refused()]

    assert down(2) == [True, True, True]
    assert not is_refused()


def test_a_method_is_guarded() -> None:
    class Model:
        @no_sync()
        def forward(self) -> tuple[Model, bool]:
            return self, is_refused()

    model = Model()
    assert model.forward() == (model, True)


def test_a_function_in_which_waits_are_allowed() -> None:
    @allow_sync("it logs")
    def log() -> bool:
        return is_refused()

    with no_sync():
        assert not log()
        assert is_refused()


def test_only_what_can_be_called_is_decorated() -> None:
    with pytest.raises(UsageError, match="only functions can be decorated, not 3"):
        no_sync()(3)  # type: ignore[type-var]
