"""Which guard is active: nested blocks, threads, asyncio tasks, generators, exceptions."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from guarding.sources import remove_source

from unstall import SyncError, allow_sync, no_sync
from unstall.errors import UsageError
from unstall.guarding import regions
from unstall.guarding.guard import Guard
from unstall.guarding.state import on_wait


class Told:
    """A source of waits that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[bool] = []

    def switch(self, on: bool) -> None:
        self.told.append(on)

    def settle(self) -> None:
        pass


@pytest.fixture
def switched() -> Iterator[list[bool]]:
    source = Told()
    regions.add_source(source)
    yield source.told
    remove_source(source)


def wait() -> None:
    """A wait, as a source of waits announces it."""
    pending = on_wait("value", "aten::item")
    if pending is not None:
        pending.waited(5_000)


def is_refused() -> bool:
    try:
        wait()
    except SyncError:
        return True
    return False


def test_without_a_guard_waits_are_nobodys_business() -> None:
    assert on_wait("value", "aten::item") is None


def test_a_guard_refuses_waits_until_it_is_left() -> None:
    with no_sync():
        assert is_refused()
    assert not is_refused()


def test_the_error_is_raised_before_the_wait() -> None:
    with no_sync() as guard, pytest.raises(SyncError):
        on_wait("value", "aten::item")
    assert [each.duration_ns for each in guard.waits] == [None]


def test_the_error_is_a_runtime_error_and_has_the_wait() -> None:
    with no_sync(), pytest.raises(RuntimeError) as raised:
        wait()
    assert isinstance(raised.value, SyncError)
    assert raised.value.wait is not None
    assert str(raised.value) == str(raised.value.wait)


def test_count_collects_each_wait_with_its_length() -> None:
    with no_sync("count") as guard:
        wait()
        wait()
    assert guard.count == 2
    assert [(each.kind, each.operator, each.duration_ns) for each in guard.waits] == [
        ("value", "aten::item", 5_000),
        ("value", "aten::item", 5_000),
    ]


def test_of_very_many_waits_the_first_are_kept_and_all_are_counted() -> None:
    with no_sync("count") as guard:
        for _ in range(10_002):
            wait()
    assert (guard.count, len(guard.waits)) == (10_002, 10_000)


def test_waits_are_allowed_within_a_guard() -> None:
    with no_sync():
        with allow_sync("a test"):
            assert not is_refused()
        assert is_refused()


def test_a_guard_within_allowed_waits_guards_again() -> None:
    with no_sync(), allow_sync("a test"), no_sync():
        assert is_refused()


def test_the_innermost_guard_decides() -> None:
    with no_sync(), no_sync("count") as inner:
        wait()
    assert inner.count == 1


def test_the_outer_guard_does_not_see_what_the_inner_one_saw() -> None:
    with no_sync("count") as outer:
        with no_sync("count"):
            wait()
        assert outer.count == 0


def test_one_guard_may_be_entered_again_within_itself() -> None:
    guard = no_sync("count")
    with guard:
        with guard:
            wait()
        wait()
    assert guard.count == 2
    assert not regions.is_guarded()


def test_another_thread_is_not_guarded() -> None:
    refused: list[bool] = []
    with no_sync():
        thread = threading.Thread(target=lambda: refused.append(is_refused()))
        thread.start()
        thread.join()
        assert is_refused()
    assert refused == [False]


def test_a_guard_of_another_thread_does_not_guard_this_one() -> None:
    entered, left, refused = threading.Event(), threading.Event(), []

    def guarded() -> None:
        with no_sync():
            entered.set()
            left.wait(10)
            refused.append(is_refused())

    thread = threading.Thread(target=guarded)
    thread.start()
    entered.wait(10)
    assert not is_refused()
    left.set()
    thread.join()
    assert refused == [True]


def test_one_guard_that_two_threads_enter_is_left_by_each_for_itself() -> None:
    guard = no_sync("count")
    inside = threading.Barrier(2, timeout=10)
    seen: list[bool] = []

    def enter(is_first: bool) -> None:
        with guard:
            inside.wait()
            if is_first:
                inside.wait()  # until the other thread has left
                seen.append(regions.is_guarded())
        if not is_first:
            inside.wait()
            seen.append(regions.is_guarded())

    threads = [threading.Thread(target=enter, args=(is_first,)) for is_first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [False, True]


def test_a_thread_that_ends_within_a_guard_leaves_none_behind(switched: list[bool]) -> None:
    def guarded() -> None:
        no_sync().__enter__()

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    gc.collect()
    assert not is_refused()
    assert switched == [True, False]


def test_it_does_not_even_until_garbage_is_collected(switched: list[bool]) -> None:
    seen: list[object] = []

    def guarded() -> None:
        regions.enter(Guard("error"))

    gc.disable()
    try:
        first = threading.Thread(target=guarded)
        first.start()
        first.join()
        assert switched == [True, False]
        assert first.ident
        seen.append(regions.innermost_of(first.ident))
    finally:
        gc.enable()
    assert seen == [None]


def test_a_source_that_cannot_see_waits_leaves_the_others_off(switched: list[bool]) -> None:
    class Blind(Told):
        def switch(self, on: bool) -> None:
            if on:
                raise UsageError("blind")

    source = Blind()
    regions.add_source(source)
    try:
        with pytest.raises(UsageError), no_sync():
            pass
    finally:
        remove_source(source)
    assert switched == [True, False]


def test_of_two_tasks_only_the_guarded_one_is_guarded() -> None:
    async def guarded(turn: asyncio.Event, other: asyncio.Event) -> bool:
        with no_sync():
            turn.set()
            await other.wait()
            return is_refused()

    async def free(turn: asyncio.Event, other: asyncio.Event) -> bool:
        await turn.wait()
        refused = is_refused()
        other.set()
        return refused

    async def both() -> list[bool]:
        turn, other = asyncio.Event(), asyncio.Event()
        return list(await asyncio.gather(guarded(turn, other), free(turn, other)))

    assert asyncio.run(both()) == [True, False]


def test_a_task_that_is_created_in_a_guard_is_guarded_until_that_is_left() -> None:
    async def child(is_left: asyncio.Event) -> list[bool]:
        before = is_refused()
        await is_left.wait()
        return [before, is_refused()]

    async def parent() -> list[bool]:
        is_left = asyncio.Event()
        with no_sync():
            task = asyncio.create_task(child(is_left))
            await asyncio.sleep(0)
        is_left.set()
        return await task

    assert asyncio.run(parent()) == [True, False]


def test_a_thread_that_runs_in_a_copy_of_the_context_is_not_guarded() -> None:
    async def wait_elsewhere() -> list[bool]:
        with no_sync():
            return [await asyncio.to_thread(is_refused), is_refused()]

    assert asyncio.run(wait_elsewhere()) == [False, True]


def test_an_exception_leaves_the_guard() -> None:
    with pytest.raises(ZeroDivisionError), no_sync():
        _ = 1 / 0
    assert not is_refused()


def test_an_exception_leaves_allowed_waits() -> None:
    with no_sync():
        with pytest.raises(ZeroDivisionError), allow_sync("a test"):
            _ = 1 / 0
        assert is_refused()


def test_a_context_manager_that_is_a_generator_guards_its_block() -> None:
    @contextmanager
    def mine() -> Iterator[None]:
        with no_sync():
            yield

    with mine():
        assert is_refused()
    assert not is_refused()


def test_a_generator_that_is_dropped_leaves_its_guard() -> None:
    def values() -> Generator[int, None, None]:
        with no_sync():
            yield 1
            yield 2

    left = values()
    next(left)
    assert is_refused()
    left.close()
    assert not is_refused()


def test_a_generator_that_is_never_finished_leaves_its_guard_when_it_is_collected() -> None:
    def values() -> Iterator[int]:
        with no_sync():
            yield 1

    left = values()
    next(left)
    del left
    gc.collect()
    assert not is_refused()


def test_a_generator_that_another_thread_drops_leaves_its_guard_here() -> None:
    def values() -> Generator[int, None, None]:
        with no_sync():
            yield 1

    left = values()
    next(left)
    thread = threading.Thread(target=left.close)
    thread.start()
    thread.join()
    assert not is_refused()


def test_guards_that_are_left_in_another_order_than_they_were_entered() -> None:
    def values(guard: no_sync) -> Generator[int, None, None]:
        with guard:
            yield 1

    outer, inner = no_sync("count"), no_sync("count")
    first, second = values(outer), values(inner)
    next(first)
    next(second)
    first.close()
    wait()
    second.close()
    assert (outer.count, inner.count) == (0, 1)
    assert not regions.is_guarded()


def test_sources_are_switched_on_by_the_first_guard_and_off_after_the_last(switched: list[bool]) -> None:
    with no_sync():
        with no_sync(), allow_sync("a test"):
            pass
        assert switched == [True]
    assert switched == [True, False]


def test_allowing_waits_switches_no_source_on(switched: list[bool]) -> None:
    with allow_sync("a test"):
        assert switched == []


def test_a_source_that_is_added_within_a_guard_is_switched_on_at_once() -> None:
    source = Told()
    with no_sync():
        regions.add_source(source)
        assert source.told == [True]
    remove_source(source)


@pytest.mark.parametrize("mode", ["raise", "", None, len])
def test_an_unknown_mode_is_refused(mode: object) -> None:
    with pytest.raises(UsageError, match="the mode is 'error', 'warn' or 'count'"):
        no_sync(mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("reason", ["", " ", None, len])
def test_waits_are_allowed_for_a_reason_only(reason: object) -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        allow_sync(reason)  # type: ignore[arg-type]


class TestInAllContexts:
    """A guard that holds in contexts that were there before it."""

    def test_it_holds_in_an_older_context(self) -> None:
        older = contextvars.copy_context()
        with no_sync():
            assert not older.run(is_refused)
            regions.hold_in_all_contexts()
            assert older.run(is_refused)
        assert not older.run(is_refused)

    def test_what_an_older_context_allows_is_allowed(self) -> None:
        def allowed() -> bool:
            with allow_sync("a test"):
                return not is_refused()

        older = contextvars.copy_context()
        with no_sync():
            regions.hold_in_all_contexts()
            assert older.run(allowed)
            assert older.run(is_refused)

    def test_it_does_not_hold_in_other_threads(self) -> None:
        seen: list[bool] = []
        with no_sync():
            regions.hold_in_all_contexts()
            thread = threading.Thread(target=lambda: seen.append(is_refused()))
            thread.start()
            thread.join()
        assert seen == [False]
